#!/usr/bin/env python3
"""scripts/gpu-check without a GPU: the whole way on fake CUDA, with fake tools of NVIDIA's; with a GPU that is refused, with none,
ended early, and over its time; how it judges figures.

usage: test_gpu_check.py BUILD-FOLDER MODULE MODE: fake CUDA as a module; "alone", "several" GPUs, or "units", without a training
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import checks

gpu_check_script = checks.script("gpu-check")
from gpu import offline, parts, probe, torch_steps  # noqa: E402
from gpu.check import Check, Cut, Failed  # noqa: E402

BUILD, MODULE, MODE = sys.argv[1:]
WORK = tempfile.mkdtemp(prefix="dtrain-test-gpu-check-")
SCRIPT = os.path.join(checks.SOURCE, "scripts", "gpu-check")

SANITIZER = """#!/bin/sh
case "$*" in
*racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
*initcheck*) echo '========= Error: Device not supported. Please refer to the documentation.'; exit 1 ;;
*synccheck*) echo '========= Barrier error detected.'; echo '========= ERROR SUMMARY: 1 error'; exit 9 ;;
*test_kernels* | *--report-api-errors*cuda.deterministic=true*) echo '========= ERROR SUMMARY: 0 errors' ;;
esac
"""
NCU = """#!/bin/sh
case "$*" in
*'--nvtx --nvtx-include step/ --clock-control none --cache-control none'*gpu__time_duration.sum,dram__bytes.sum*) ;;
*) echo "wrong: $*"; exit 1 ;;
esac
while [ "$1" != --log-file ]; do shift; done
echo 'cutlass::Kernel2 (invocations: 2)' > "$2"
"""
PYTHON = """#!/bin/sh
case "$*" in
*'import torch'*) echo '2.11.0, CUDA 13.0, cuDNN 91900, sees the GPU' ;;
-c*) exec python3 "$@" ;;
*) echo '{"name": "versions", "text": "torch 2.11.0"}'
   echo a warning
   echo '{"name": "batch 4, bf16, eager", "us": [480, 470, 500]}'
   echo '{"name": "batch 4, bf16, compile", "text": "no"}'
   %s ;;
esac
"""


def check(condition, *about):
    if not condition:
        sys.exit("test_gpu_check: %s" % " ".join(map(str, about)))


def program(name, text):
    path = os.path.join(WORK, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def command(name, *more, script=SCRIPT, build=("--build", BUILD)):
    """Its ten minutes are for a GPU: fake CUDA, on a busy machine, gets as long as it takes."""
    return [sys.executable, script, "--dry-run", *build, "--module", MODULE, "--report", os.path.join(WORK, name + ".md"),
            "--minutes", "120", *more]


def rows(name):
    """{part: {name: (found, limit, verdict)}} of a report, the latest row of a name."""
    found = {}
    with open(os.path.join(WORK, name + ".md")) as file:
        for line in file:
            if line.startswith("| ") and not line.startswith("| part "):
                part, row, *rest = [cell.strip() for cell in re.split(r" \| ", line.strip().strip("|"))]
                found.setdefault(part, {})[row] = tuple(rest)
    return found


def gpu_check(name, *more, script=SCRIPT, build=("--build", BUILD), **env):
    done = subprocess.run(command(name, *more, script=script, build=build), env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    check(os.path.exists(os.path.join(WORK, name + ".md")), done.stderr)
    return done.returncode, done.stdout + done.stderr, rows(name)


def alone_all_well():
    program("compute-sanitizer", SANITIZER)
    program("ncu", NCU)
    code, said, found = gpu_check("well", "--python", program("python", PYTHON % "exit 9"), PATH=WORK + ":" + os.environ["PATH"])
    ends = {name: part["the whole part"][2] for name, part in found.items() if name != "there"}
    check(ends == {**dict.fromkeys(gpu_check_script.NAMES, "done"), "pytorch": "FAIL"}, ends, said)
    for part, name in (("agreement", "gradients and loss, tf32"), ("same_bits", "with and without graph, bf16"),
                       ("ranks", "2 ranks on one GPU, loss"), ("nccl", "3 ranks on one GPU, loss"), ("nccl", "2 ranks on one GPU, loss"),
                       ("nccl", "3 ranks on one GPU, uneven batches"), ("nccl", "a stopped peer on one GPU, graph"),
                       ("nccl", "a stopped peer on one GPU, calls"), ("sanitizer", "memcheck, three steps, graph"),
                       ("sanitizer", "racecheck, test_kernels")):
        check(found[part].get(name, "")[-1:] == ("pass",), part, name, said)
    check("on fake CUDA" in said and found["accuracy"]["MNIST, 12 epochs, bf16"][1:] == (">= 98.90", "-"), "figures of fake CUDA", said)
    check(re.fullmatch(r"\d+(\.\d+)? us \(\S+ to \S+\)", found["speed"]["batch 4, bf16, graph"][0]), found["speed"])
    for n in (2, 3):
        sums = found["nccl"]["%d ranks on one GPU, sums in a graph" % n][0]
        check(sums.startswith("works: %d ranks on one GPU" % n), sums)
    check(found["nccl"]["experiment: 2 ranks on one GPU"][0].startswith("works: 2 ranks on one Fake GPU"), found["nccl"])
    check({"f32", "tf32", "bf16"} < set(found["gemm"]), found["gemm"])
    sanitized = found["sanitizer"]
    check(sanitized["initcheck, test_kernels"][::2] == ("Device not supported", "skipped"), sanitized)
    check("Barrier error" in sanitized["synccheck, test_kernels"][0] and code == 1, sanitized)
    nodes = {name: int(row[0].split()[0]) for name, row in found["profile"].items() if row[0].endswith("nodes")}
    check(0 < nodes["longest chain, mnist, bf16"] <= nodes["nodes, mnist, bf16"], nodes)
    check(nodes["nodes, mnist-mlp, bf16"] < nodes["nodes, mnist, bf16"], nodes)
    check(len(re.findall(r"^  conv2 +\d+ +\d+ +[26] +[\d,.]+ +[\d.]+ [kMG]?B  [a-z ]+$", said, re.M)) == 9, said)
    check(said.count("cutlass::Kernel2 (invocations: 2)") == 2, said)
    torch = found["pytorch"]
    check(torch["batch 4, bf16, eager"][0] == "480 us (470 to 500)" and torch["batch 4, bf16, compile"][0] == "no", torch)
    check("PyTorch / dtrain, batch 4, bf16, best" in torch and "ended with 9" in torch["the whole part"][0], torch)


def alone_refused():
    """A GPU that is too old for the program: each part says so, and the next begins; as in a later call with other parts."""
    chosen = "speed,accuracy,agreement,same_bits"
    for each in (chosen, "ranks"):
        code, said, found = gpu_check("refused", "--parts", each, FAKE_CAPABILITY="75")
        check(code == 1 and "has compute capability 7.5" in said, "ended with", code)
    for part in [*chosen.split(","), "ranks"]:
        verdicts = {row[2] for name, row in found[part].items() if row[0] and name != "the whole part"}
        check("has compute capability 7.5" in str(found[part]) and "pass" not in verdicts, part, found[part])
    code, said, found = gpu_check("refused", "--parts", "accuracy", "--minutes", "0.002")
    how = found["accuracy"]["the whole part"]
    check(code == 1 and how[2] == "cut" and "in MNIST, 12 epochs, bf16: " in how[0], said)


def alone_terminated():
    """What it runs ends with it, and what was measured is in the report."""
    marker = os.path.join(WORK, "left")
    slow = program("slow-python", PYTHON % ("sleep 4; touch " + marker))
    process = subprocess.Popen(command("terminated", "--parts", "pytorch", "--python", slow), stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "batch 4, bf16, compile" in line:
            process.terminate()
            break
    check(process.wait() == 143, "ended with", process.returncode)
    check("batch 4, bf16, eager" in rows("terminated")["pytorch"], rows("terminated"))
    time.sleep(4.5)
    check(not os.path.exists(marker), "what it ran was not ended")


def alone_installed():
    """The installed one checks the installed program, whatever the PATH has, and says what it skips."""
    prefix, wrong = os.path.join(WORK, "prefix"), os.path.join(WORK, "wrong")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    os.makedirs(wrong)
    os.symlink("/bin/false", os.path.join(wrong, "dtrain"))
    script = os.path.join(prefix, "share", "dtrain", "gpu-check")
    check(os.access(script, os.X_OK), "gpu-check is not installed as a program")
    code, said, found = gpu_check("installed", "--parts", "tests,gemm,accuracy,ranks,nccl", script=script, build=(),
                                  PATH=wrong + ":" + os.environ["PATH"])
    check(code == 0, "the installed dry run failed:", said)
    skipped = {name for name, part in found.items() if "an installation has no sources" in str(part)}
    check(skipped == {"tests", "gemm", "nccl"} and found["ranks"]["the whole part"][2] == "done", found)
    left = [path for path, _, _ in os.walk(os.path.join(prefix, "share")) if path.endswith("__pycache__")]
    check(not left, "it writes beside itself:", left)


def several_gpus():
    code, said, found = gpu_check("several", "--parts", "nccl", FAKE_DEVICES="3")
    check(code == 0 and found["nccl"]["3 ranks, sums in a graph"][0].startswith("works: 3 ranks"), said)
    for name in ("2 ranks, loss", "3 ranks, loss", "3 ranks, uneven batches", "a stopped peer, graph", "a stopped peer, calls"):
        check(found["nccl"].get(name, "")[-1:] == ("pass",), name, "is not in", said)


def units_nothing_there():
    """No GPU, no program: each part says in a line what it lacks; nothing passes."""
    empty = os.path.join(WORK, "empty")
    names = [name for name in gpu_check_script.NAMES if name != "build"]
    done = subprocess.run([sys.executable, SCRIPT, "--build", empty, "--report", os.path.join(WORK, "bare.md"), "--parts", ",".join(names)],
                          env=dict(os.environ, CUDA_VISIBLE_DEVICES=""), capture_output=True, text=True)
    check(done.returncode == 1 and rows("bare").pop("there")["GPU"][0] == "missing", done.stdout)
    for name in names:
        part = rows("bare")[name]
        why, _, verdict = part["the whole part"]
        check("no GPU" in why and verdict == "skipped", name, part)
        check(name == "pytorch" or "no %s/dtrain (the part build makes it)" % empty in why, name, part)
    c = new_check("bare")
    c.args.dry_run = False
    ended = gpu_check_script.take(c, *gpu_check_script.PARTS[0][::2])
    check(ended == ("skipped", "no cmake; no nvcc; no mpicc; no cuBLAS; no cuDNN; no NCCL"), ended)
    shutil.rmtree(c.folder)


def new_check(name, **more):
    report = os.path.join(WORK, name + ".md")
    found = Check(argparse.Namespace(**{"build": BUILD, "module": MODULE, "dry_run": True, "python": sys.executable, "data": WORK,
                                        "prebuilt": False, "report": report, **more}))
    found.deadline = time.monotonic() + 400
    return found


def units_verdicts():
    """Limits, failures, and figures of fake CUDA."""
    def fails():
        raise Failed("no | such\nthing")

    for dry, function, limits, expected in (
            (False, lambda: 60, {"most": 60}, ("60 us", "<= 60", "pass")), (False, lambda: 61.5, {"most": 60}, ("61.50 us", "<= 60", "FAIL")),
            (False, lambda: 1.5, {"least": 1.5}, ("1.50 us", ">= 1.50", "pass")),
            (False, lambda: 1.25, {"least": 1.5}, ("1.25 us", ">= 1.50", "FAIL")),
            (False, lambda: [3, 1, 8], {}, ("3 us (1 to 8)", "", "")), (True, lambda: 61, {"most": 60}, ("61 us", "<= 60", "-")),
            (False, lambda: float("nan"), {"most": 60}, ("nan us", "<= 60", "FAIL")), (True, lambda: False, {}, ("no", "", "FAIL")),
            (True, lambda: True, {}, ("yes", "", "pass")), (True, fails, {}, ("no \\| such; thing", "", "FAIL"))):
        c = new_check("verdicts", dry_run=dry)
        c.part = "speed"
        c.row("x", "us", function, **limits)
        check(rows("verdicts")["speed"]["x"] == expected and c.passed is (expected[2] != "FAIL"), rows("verdicts"), expected)
        shutil.rmtree(c.folder)


def units_ratios():
    """PyTorch's times divided by ours, and the share of the peak."""
    c = new_check("ratios", dry_run=False)
    c.part, c.there = "pytorch", {"GPU": "NVIDIA H200"}
    c.found = {("speed", "batch 128, bf16, graph"): 60.0, ("speed", "batch 128, bf16, calls"): 240.0, ("gemm", "bf16"): 790,
               **{("pytorch", "batch 128, bf16, " + way): us for way, us in {"eager": 480.0, "graph": 100.0, "autotune": 84.0}.items()}}
    parts.ratios(c)
    found = rows("ratios")["pytorch"]
    check(found == {"PyTorch / dtrain, batch 128, bf16, eager": ("8 times", ">= 8", "pass"),
                    "PyTorch / dtrain, batch 128, bf16, best": ("1.40 times", ">= 1.50", "FAIL")}, found)
    check(parts.peak(c) == 989, parts.peak(c))
    c.there["GPU"] = "NVIDIA of next year"
    check(parts.peak(c) == 790, parts.peak(c))
    forward = 26 * 26 * 32 * 9 + 24 * 24 * 64 * 288 + 9216 * 128 + 128 * 10
    check(parts.FLOP_PER_SAMPLE == 3 * 2 * forward - 2 * 26 * 26 * 32 * 9, parts.FLOP_PER_SAMPLE)
    check({each[:2] for each in torch_steps.ORDER[:8]} == {(128, "bf16"), (4096, "bf16")}, "the wanted ones are not the first")
    check(len(set(torch_steps.ORDER)) == len(torch_steps.ORDER) == 36, torch_steps.ORDER)
    shutil.rmtree(c.folder)


def units_time_limit():
    """What a program had said when its time was over is kept; without time nothing begins."""
    c, said, marker = new_check("limit"), [], os.path.join(WORK, "begun")
    c.deadline = time.monotonic() + 3
    try:
        c.run(["sh", "-c", "echo said; sleep 300 & wait"], each=said.append)
        check(False, "no time limit")
    except Cut as why:
        check(why.output == "said\n" and said == ["said"] and str(why) == "in sh: said", why)
    try:
        c.run(["touch", marker])
        check(False, "it begins without time")
    except Cut:
        check(not os.path.exists(marker), "it began without time")
    shutil.rmtree(c.folder)


def units_libraries():
    """Libraries of wheels: with their header, or not at all."""
    site = os.path.join(WORK, "site", "nvidia")
    for path in ("cudnn/include/cudnn.h", "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2"):
        os.makedirs(os.path.dirname(os.path.join(site, path)), exist_ok=True)
        open(os.path.join(site, path), "w").close()
    wheels = probe.wheels_of([os.path.join(WORK, "site")])
    check(probe.find("nccl.h", "libnccl", wheels) is None, "a library without its header")
    found = probe.find("cudnn.h", "libcudnn", wheels)
    check(found == "%s/cudnn/include, %s/cudnn/lib/libcudnn.so.9" % (site, site), found)


def units_tests():
    """The tests of another machine's build run one by one, with the libraries that are here; CTest's lines of the others are rows."""
    folder = os.path.join(WORK, "prebuilt")
    c = new_check("tests", prebuilt=True, dry_run=False, module=None, build=folder)
    os.makedirs(os.path.join(folder, "tests", "gpu"))
    for name, text in (("dtrain", 'echo "dtrain 1, $LD_LIBRARY_PATH"'), ("libdtrain_cuda.so", ""), ("tests/gpu/gpu_test_kernels", "exit 0"),
                       ("tests/gpu/gpu_test_no_gpu", "exit 77"), ("tests/gpu/gpu_test_wrong", "exit 1")):
        program(os.path.join("prebuilt", name), "#!/bin/sh\n" + text + "\n")
    c.there = {"GPU": "one", "cuBLAS": "/w/cublas/include, /w/cublas/lib/l.so", "cuDNN": "/w/cudnn/include, /w/cudnn/lib/l.so", "NCCL": None}
    probe.use_libraries(c)
    for part, _, needs in gpu_check_script.PARTS[:2]:
        c.part = part.__name__
        check(gpu_check_script.take(c, part, needs) == ("done", ""), rows("tests"))
    found = rows("tests")
    check(found["build"]["program and module"][2] == "pass", found)
    check(found["build"]["version"][0].startswith("dtrain 1, /w/cublas/lib:/w/cudnn/lib"), found)
    how = {name: row[::2] for name, row in found["tests"].items()}
    check(how == {"gpu_test_kernels": ("yes", "pass"), "gpu_test_no_gpu": ("gpu_test_no_gpu ended with 77:", "FAIL"),
                  "gpu_test_wrong": ("gpu_test_wrong ended with 1:", "FAIL")}, how)
    program("ctest", """#!/bin/sh
echo '1/3 Test #12: gpu_a ..............   Passed    0.02 sec'
echo '2/3 Test #13: gpu_b ..............***Skipped   0.02 sec'
echo '3/3 Test #14: gpu_c ..............***Failed    0.02 sec'
""")
    c.args.prebuilt, c.env["PATH"], os.environ["PATH"] = False, WORK + ":" + c.env["PATH"], WORK + ":" + os.environ["PATH"]
    parts.tests(c)
    found = rows("tests")["tests"]
    check([found["gpu_" + name][2] for name in "abc"] == ["pass", "FAIL", "FAIL"], found)
    shutil.rmtree(c.folder)


def units_graph():
    dot = 'digraph dot {\nsubgraph cluster_1 {\nlabel="graph_1" graph[style="dashed"];\n'
    dot += "".join('"graph_1_node_%d"[style="solid" shape="rectangle" label="%d\nkernel\n"];\n' % (i, i) for i in range(5))
    dot += "".join('"graph_1_node_%d" -> "graph_1_node_%d"[headlabel=0];\n' % edge for edge in ((0, 4), (4, 1), (1, 2), (0, 2))) + "}\n}\n"
    check(parts.nodes_and_chain(dot) == (5, 4), parts.nodes_and_chain(dot))


def units_unpacking():
    """A package's files that name their place are told the new one."""
    if not shutil.which("dpkg-deb"):
        return
    folder, tree = os.path.join(WORK, "offline"), os.path.join(WORK, "tree")
    control = "Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: sample\n"
    wrapper, config = "usr/bin/mpicc.mpich", "usr/lib/some-linux-gnu/cmake/cJSON/cJSON.cmake"
    for path, text in (("DEBIAN/control", control), (wrapper, "prefix=/usr\n"), (config, "/usr/include\n")):
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        with open(os.path.join(tree, path), "w") as file:
            file.write(text)
    os.makedirs(folder)
    subprocess.run(["dpkg-deb", "--build", tree, folder], check=True, stdout=subprocess.DEVNULL)
    root = os.path.join(folder, "root")
    offline.unpack(folder, root)
    for path, text in ((wrapper, "prefix=%s/usr\n" % root), (config, root + "/usr/include\n")):
        with open(os.path.join(root, path)) as file:
            check(file.read() == text, path)


for name, test in sorted(globals().items()):
    if name.startswith(MODE + "_"):
        test()
shutil.rmtree(WORK)
print("gpu-check: ok")
