#!/usr/bin/env python3
"""scripts/gpu-check without a GPU, on fake CUDA and with programs in place of the tests that need one: what it packs runs from there;
what hangs, crashes or fails leaves a summary that is whole and names it; each part finds its figures; the page that comes of them.

usage: test_gpu_check.py BUILD_DIR MODULE faults|parts: fake CUDA as a module
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import checks
from checks import check, read, write

BUILD, MODULE, PART = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
SCRIPT = os.path.join(checks.SOURCE, "scripts", "gpu-check")
ROW = re.compile(r" *\d+ s \| (.*?) \| (.*?) \| (.*?) \| (.*)")
HANGS = "setsid sleep 1000 & echo 'kernel 3 of 7'; sleep 1000"
SUITES = {"kernels": "kill -SEGV $$", "cuda_errors": "echo 'error: 3 is not 4'; exit 1", "cuda_blocks": HANGS,
          "step_graph": "echo 'skipped: no GPU'; exit 77"}
NCU = """echo '==PROF== Profiling "step"'
echo '"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","launch__grid_size","launch__registers_per_thread"'
echo '"","","Mbyte","Mbyte","ns","","register/thread"'
echo '"0","conv(float *, int)","1.25","2.5","4,032","384","40"'
echo '"1","sum","0","0","1,000","1","16"'"""
SANITIZER = """case "$*" in
*racecheck*) echo 'Device not supported' ;;
*memcheck*/bin/dtrain*) echo 'Invalid read of 4 bytes, an error'; echo 'ERROR SUMMARY: 1 error'; exit 9 ;;
*initcheck*) echo 'INITCHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
*memcheck*) echo 'ERROR SUMMARY: 0 errors' ;;
esac"""
STUBS = {"ncu": NCU, "compute-sanitizer": SANITIZER,
         "cuda-gdb": "echo 'Thread 1 received signal SIGSEGV, error'", "nvcc": """while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\nprintf "a further kernel\\\\t0.812\\\\tus\\\\nrow 2\\\\tcuda error\\\\tus\\\\n"\\n' >"$2"; chmod +x "$2" """}


def program(path, text):
    write(path, "#!/bin/sh\n%s\n" % text)
    os.chmod(path, 0o755)


def pack():
    """A kit of the real program and of programs in place of the tests."""
    for name, text in STUBS.items():
        program("stubs/" + name, text)
    os.environ["PATH"] = os.path.abspath("stubs") + ":" + os.environ["PATH"]
    for name, text in SUITES.items():
        program("build/tests/gpu/gpu_test_" + name, text)
    program("build/tests/gpu/gpu_gemm_rate", "echo 'bf16 789.5 (780.1 to 791.0)'; echo 'f32 50.1 (49.0 to 51.0)'; " + HANGS)
    program("build/tests/gpu/gpu_nccl_in_graph", "echo 'works: 2 ranks'")
    shutil.copy(os.path.join(BUILD, "dtrain"), "build/dtrain")
    write("build/libdtrain_cuda.so", "")
    write("data/t10k-labels-idx1-ubyte.gz", "x")
    done = checks.run(SCRIPT, "prepare", "--build", "build", "--kit", "kit", "--data", "data", code=0)
    check(re.search(r"kit: \d+\.\d MiB$", done.stdout.strip()), "it does not say the size:", done)
    check(read("kit/mnist/t10k-labels-idx1-ubyte.gz") == "x" and read("kit/gpu-check") == read(SCRIPT), "the kit is not whole")


def too_large():
    """A kit that cannot be carried is refused."""
    checks.script("gpu-check")
    from gpu import prepare
    prepare.MOST = 1 << 10
    program("tiny/dtrain", "")
    program("tiny/libdtrain_cuda.so", "")
    check("more than 0 MiB" in str(prepare.prepare(os.path.abspath("tiny-kit"), "tiny", "nowhere")), "a kit of any size is taken")


def command(*words, out="out"):
    """Of the kit's own program, so that no other kit is taken."""
    return [sys.executable, "kit/gpu-check", *words, "--fake", MODULE, "--out", out]


def rows(out="out"):
    """{(part, name): (verdict, found)} of a summary."""
    return {found.groups()[:2]: found.groups()[2:] for found in map(ROW.match, read(out + "/summary.txt").splitlines()) if found}


def gpu_check(*words, code, **more):
    """Its rows; no process of it may be left."""
    begin = time.monotonic()
    done = checks.run(*command(*words, **more), code=code)
    running = left()
    check(not running, "left running:", running)
    found = rows(more.get("out", "out"))
    check(found.get(("gpu-check", "end")), "the summary does not end:", done)
    for row in re.findall(r"^faults:\n((?:.|\n)*)", done.stdout):
        named = {tuple(line.split(" | ")[:3]) for line in row.splitlines()}
        check(named >= {(*key, verdict) for key, (verdict, _) in found.items() if verdict in ("FAIL", "CRASH", "CUT")}, "unnamed:", done.stdout)
    return found, time.monotonic() - begin


def left():
    """Processes that gpu-check began and that are still there; ends them."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/environ", "rb") as environment, open(path + "/cmdline", "rb") as words:
                if b"GPU_CHECK_CALL=" + os.environ["TMPDIR"].encode() in environment.read():
                    found.append(words.read())
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
        except OSError:
            pass
    return found


def faults_of_programs():
    found, _ = gpu_check("more", "kernels", "debug", code=1)
    for name, expected in {"kernels": ("CRASH", "SIGSEGV: it says nothing"), "cuda_errors": ("FAIL", "exit code 1: error: 3 is not 4")}.items():
        check(found["kernels", "gpu_test_" + name] == expected, name, found)
    debugged = {name for part, name in found if part == "debug"}
    check(debugged == {"%s: gpu_test_%s" % (tool, name) for tool in ("cuda-gdb", "memcheck") for name in ("kernels", "cuda_errors")}, found)
    check(found["debug", "cuda-gdb: gpu_test_kernels"] == ("ok", "Thread 1 received signal SIGSEGV, error"), found)
    check("error: 3 is not 4\n-------- exit code 1" in read("out/all.log"), read("out/all.log"))


def a_part_that_hangs():
    """It is cut off; what ran beside it has ended, what comes behind it is named; rows of before stay."""
    found, seconds = gpu_check("more", "plans", "edges", "--seconds", "4", code=1)
    verdict, said = found["plans", "gpu_test_cuda_blocks"]
    check(verdict == "CUT" and re.fullmatch("after [0-3] s: kernel 3 of 7", said) and seconds < 10, seconds, found)
    check(found["plans", "gpu_test_step_graph"] == ("skipped", "no GPU") and found["edges", "all of it"][0] == "not begun", found)
    check(found["kernels", "gpu_test_kernels"][0] == "CRASH", "an earlier call's rows are gone")
    found, _ = gpu_check("more", "gemm", "--seconds", "3", code=1, out="gemm")
    check(found["gemm", "the rest"][0] == "CUT" and found["gemm", "bf16"] == ("fake", "789.50 TFLOP/s (789.50 to 789.50)"), found)
    check("bf16 789.5" in read("gemm/all.log"), "what it printed is lost")


def what_a_program_leaves():
    """It ends with the program's time, not with the run."""
    checks.script("gpu-check")
    from gpu import kit
    c = kit.Kit(os.path.abspath("kit"), "own", 60, MODULE)
    check(c.row("x", 1.5, c.call, c.bin("gpu_test_cuda_blocks")) is None and c.here.verdict == "CUT", read("own/summary.txt"))
    check(not left(), "left running by a program that was cut off")
    c.kill = lambda mark: None  # as of one that waits in the driver
    check(c.row("y", 1.5, c.call, c.bin("gpu_test_cuda_blocks")) is None and c.here.verdict == "CUT" and left(), "it waits for it")
    shutil.rmtree(c.work)


def ended_from_outside():
    """By SIGTERM, and by what cannot be caught: the summary says what was under way."""
    for number, code in (signal.SIGTERM, 143), (signal.SIGKILL, -9):
        out = "ended-%d" % number
        process = subprocess.Popen(command("more", "kernels", "plans", out=out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in process.stdout:
            if b"gpu_test_step_graph" in line:
                break
        time.sleep(0.3)
        process.send_signal(number)
        check(process.wait(20) == code, "ended with", process.returncode)
        text = read(out + "/summary.txt")
        check(re.search(r"^under way since \d+ s: plans, gpu_test_cuda_blocks$", text, re.M), text)
        check(rows(out)["kernels", "gpu_test_kernels"][0] == "CRASH", text)
        check(bool(left()) == (number == signal.SIGKILL), "left running, or not, by signal", number)


def a_run_on_fake_cuda():
    """All parts of a run, in less time than they want: each is in the summary."""
    found, seconds = gpu_check("run", "--seconds", "12", code=1, out="run")
    check(seconds < 40, "it took", seconds)
    checks.script("gpu-check")
    from gpu import parts
    check({part for part, _ in found} == {part for group in parts.RUN for part in group} | {"gpu-check"}, "not all parts:", found)
    wrong = {key: row for key, row in found.items() if key[0] in ("facts", "ladder") and row[0] in ("FAIL", "CRASH")}
    check(not wrong and found["facts", "program"][1].startswith("dtrain "), wrong, found)
    check(found["sanitizer", "all of it"] == ("not begun", "no time was left"), found)


def the_page():
    write("page.md", "# Above\n\n## Measured\n\nold\n")
    write("other.md", "# Above\n")
    us = {"speed": {"batch 128, bf16, graph": 100, "batch 128, bf16, calls": 400, "batch 4096, bf16, graph": 1300},
          "without": {"batch 128, all": 100, "batch 128, all again": 102, "batch 128, without head": 111.1, "batch 128, without steps": 103},
          "pytorch": {"batch 128, bf16, eager": 700, "batch 128, bf16, graph": 180}, "compile": {"batch 128, bf16, compile": 160}}
    summary = "   1 s | facts | GPU | ok | NVIDIA H200, 580\n   9 s | ladder | mnist f32 calls first | CRASH | SIGSEGV: where\n"
    summary += "".join("  20 s | %s | %s | ok | %.2f us (1 to 2000)\n" % (part, name, t) for part, each in us.items() for name, t in each.items())
    write("first/summary.txt", summary + "under way since 7 s: x, y\n")
    write("second/summary.txt", "  21 s | speed | batch 128, bf16, graph | ok | 80.00 us (79.00 to 81.50)\n")
    checks.run(SCRIPT, "report", "first", "second", "--page", "page.md", code=0)
    page = read("page.md")
    for text in ("# Above\n", "- GPU: NVIDIA H200, 580\n", "- ladder, mnist f32 calls first: **CRASH** SIGSEGV: where\n",
                 "| batch 128, bf16, graph | 80.0 | 1600000 | 700.0 | 160.0 | 2.00 |\n", "| batch 128, bf16, calls | 400.0 | 320000 | – | – | – |\n",
                 "| at 128, µs | 80.00 | 60 | missed |\n", "| PyTorch eager by it | 8.75 | 8 | held |\n", "| PyTorch's best by it | 2.00 | 1.5 | held |\n",
                 "| at 4096, % of the peak | 22.80 | 25 | missed |\n", "| head | 100.0 and 102.0 | 111.1 | 10.0 | – | – | – | stays |\n",
                 "| steps | 100.0 and 102.0 | 103.0 | 2.0 | – | – | – | can go |\n", "| batch 128, bf16, compile | ok | 160.00 us (1 to 2000) |\n"):
        check(text in page, repr(text), "is not in", page)
    write("second/summary.txt", "  21 s | without | batch 128, all again | ok | 106.00 us (79.00 to 81.50)\n")
    checks.run(SCRIPT, "report", "first", "second", "--page", "other.md", code=0)
    check("| steps | 100.0 and 106.0 | 103.0 | 0.0 | – | – | – | unclear |" in read("other.md"), read("other.md"))
    check("old" not in page and "fake" not in page and page.count("## Measured") == 1, page)
    checks.run(SCRIPT, "report", "run", "--page", "page.md", code=0)
    check("**On fake CUDA: no figure means anything.**" in read("page.md"), read("page.md"))
    done = checks.run(SCRIPT, "report", "stubs", "--page", "page.md", code=1)
    check(done.stderr.startswith("gpu-check: no rows in stubs"), done.stderr)
    done = checks.run(SCRIPT, "run", "--kit", "stubs", "--out", "none", code=1)
    check(done.stderr.startswith("gpu-check: stubs is no kit"), done.stderr)


def parts_on_fake_cuda():
    found, _ = gpu_check("more", "agreement", "speed", "without", "profile", "edges", "pytorch", "ranks", "sanitizer",
                         "--seconds", "240", code=1)
    for precision in "bf16", "tf32", "f32":
        check(found["agreement", "gradients and loss, " + precision][0] == "ok", precision, found)
    check(re.fullmatch(r"[\d.]+ us \([\d.]+ to [\d.]+\)", found["speed", "batch 128, bf16, graph"][1]), found)
    check(found["without", "batch 4096, without head"][0] == "fake" and ("without", "the rest") not in found, found)
    check(1 < int(found["profile", "nodes, mnist-mlp.json, bf16"][1]) < int(found["profile", "nodes, mnist.json, bf16"][1]), found)
    check(found["profile", "kernel 1"] == ("ok", "4,032 ns, read 1.25 Mbyte, written 2.5 Mbyte, 384 blocks, 40 register/thread: conv(float *, int)"),
          found["profile", "kernel 1"])
    check(found["edges", "a further kernel"] == ("fake", "0.81 us (0.81 to 0.81)") and found["edges", "row 2"][0] == "FAIL", found)
    check(found["pytorch", "the rest"][0] == "skipped", found)
    for name in ("2 ranks through host memory, loss", "2 ranks by NCCL, loss", "3 ranks by NCCL, loss", "a stopped rank, graph",
                 "3 ranks by NCCL, uneven batches: same bits with and without graph", "a stopped rank, call by call"):
        check(found["ranks", name][0] == "ok", name, found)
    check(found["ranks", "2 ranks, sums by NCCL in a graph"] == ("ok", "works: 2 ranks; works: 2 ranks"), found)
    sanitized = {name: row for (part, name), row in found.items() if part == "sanitizer"}
    check({name: row[0] for name, row in sanitized.items()} == {
        "racecheck, kernels": "FAIL", "memcheck, kernels": "ok", "initcheck, kernels": "ok", "memcheck, three steps": "FAIL"}, sanitized)
    check("it does not say what it found" in sanitized["racecheck, kernels"][1], sanitized)
    check(sanitized["memcheck, three steps"][1] == "exit code 9: Invalid read of 4 bytes, an error", sanitized)


def main():
    if not (shutil.which("mpiexec.hydra") and shutil.which("hydra_pmi_proxy")):
        checks.skip("no mpiexec.hydra of MPICH")
    checks.new_folder()
    tempfile.tempdir = os.environ["TMPDIR"] = os.getcwd()  # what gpu-check's mark has, so that nobody else's is counted
    pack()
    if PART == "parts":
        parts_on_fake_cuda()
    else:
        too_large()
        faults_of_programs()
        a_part_that_hangs()
        what_a_program_leaves()
        ended_from_outside()
        a_run_on_fake_cuda()
        the_page()
    checks.finish()


main()
