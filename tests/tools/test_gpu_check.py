#!/usr/bin/env python3
"""scripts/gpu-check without a GPU: the whole way on fake CUDA, with fake tools of NVIDIA's; with a GPU that is refused, with none,
killed, and over its time; what it makes of figures. Its JSON is always as its schema says.

usage: test_gpu_check.py BUILD-FOLDER MODULE MODE: fake CUDA as a module; "alone", "several" GPUs, or "units", what takes no training
"""
import argparse
import copy
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))
from gpu import offline, probe, record, report, tools, torch_steps  # noqa: E402
from gpu.check import Check, Cut  # noqa: E402

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

BUILD, MODULE, MODE = sys.argv[1:]
WORK = tempfile.mkdtemp(prefix="dtrain-test-gpu-check-")
SCRIPT = os.path.join(TOP, "scripts", "gpu-check")
with open(os.path.join(TOP, "docs", "benchmarks", "gpu-check.schema.json")) as schema_file:
    SCHEMA = json.load(schema_file)
loader = importlib.machinery.SourceFileLoader("gpu_check", SCRIPT)
gpu_check_script = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check_script)

SMI = """#!/bin/sh
case "$*" in
*driver_version*) echo '580.1, 1980 MHz, 700.00 W, 143771 MiB' ;;
*) while :; do echo '345, 31, 0'; echo '1950, 45, 97'; echo '1980, 44, 98'; sleep 0.02; done ;;
esac
"""
SANITIZER = """#!/bin/sh
case "$*" in
--version) echo 'NVIDIA (R) Compute Sanitizer'; echo 'Version 2025.3.1' ;;
*racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
*initcheck*) echo '========= Error: Device not supported. Please refer to the documentation.'; exit 1 ;;
*synccheck*) echo '========= Barrier error detected.'; echo '========= ERROR SUMMARY: 1 error'; exit 9 ;;
*test_kernels* | *--report-api-errors*cuda.deterministic=true*) echo '========= ERROR SUMMARY: 0 errors' ;;
esac
"""
NCU = """#!/bin/sh
case "$*" in
--version) echo 'Version 2025.3.1.0 (build 36398880)'; exit ;;
--query-metrics) echo 'dram__bytes    Counter   byte'; echo 'sm__pipe_tensor_cycles_active   Counter   cycle'; exit ;;
*'--clock-control none --cache-control none'*gpu__time_duration.sum,dram__bytes.sum,sm__pipe_tensor_cycles_active.avg*) ;;
*) echo "wrong: $*"; exit 1 ;;
esac
case "$*" in
*'--nvtx --nvtx-include step/'*) which=step ;;
*) which=all ;;
esac
while [ "$1" != --log-file ]; do shift; done
cp "%s/$which.csv" "$2"
"""
COLUMNS = ("ID", "Process ID", "Kernel Name", "Grid Size", "dram__bytes.sum", "gpu__time_duration.sum",
           "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")
STEP = (("gather_kernel(dt_gpu_samples, const unsigned int *)", "3,000,000", "3,000", "0"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16>(T1::Params)", "1,500,000", "6,000", "50"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16>(T1::Params)", "1,500,000", "2,000", "10"),
        ("optimizer_kernel(const dt_update *, float *)", "9,000,000", "1,000", "0"))
TRIAL = [("void cutlass::Kernel2<cutlass_80_tensorop_bf16>(T1::Params)", "1,500,000", "6,000", "50")] * 33  # before the first step
EVALUATION = [("gather_kernel(dt_gpu_samples, const unsigned int *)", "1", "700,000", "0")]
NCU_CSV = {name: "\n".join(["==PROF== Connected to process 7", ",".join('"%s"' % c for c in COLUMNS), '"","","","","byte","ns","%"',
                            *('"%d","7","%s","(4, 1, 1)","%s","%s","%s"' % (i, *row) for i, row in enumerate(launches))])
           for name, launches in (("step", STEP), ("all", [*TRIAL, *STEP, *EVALUATION]))}  # in the range "step"; without a filter
PYTHON = """#!/bin/sh
case "$*" in
*'import torch'*) echo '2.11.0, CUDA 13.0, cuDNN 91900, sees the GPU' ;;
-c*) exec python3 "$@" ;;
*eager*)
  echo '{"torch": "2.11.0"}'
  echo a warning
  echo '{"batch": 4, "precision": "bf16", "way": "eager", "us": 480, "min": 470, "max": 500, "n": 7}'
  echo '{"batch": 4, "precision": "bf16", "way": "compile", "error": "no"}'
  exit 9 ;;
*) echo '{"batch": 4, "precision": "bf16", "way": "compile", "us": 240.5, "min": 240, "max": 241, "n": 7}' ;;
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


def with_tools():
    """A PATH with fake versions of nvidia-smi, ncu and compute-sanitizer in front."""
    program("nvidia-smi", SMI)
    program("compute-sanitizer", SANITIZER)
    program("ncu", NCU % WORK)
    for name, text in NCU_CSV.items():
        with open(os.path.join(WORK, name + ".csv"), "w") as file:
            file.write(text)
    return WORK + ":" + os.environ["PATH"]


def valid(document):
    if Draft202012Validator:
        errors = [(e.json_path, e.message) for e in Draft202012Validator(SCHEMA).iter_errors(document)]
        check(not errors, errors[:3])
    return document


def load(path):
    with open(path) as file:
        return valid(json.load(file))


def command(name, *more, script=SCRIPT, build=("--build", BUILD)):
    """Its ten minutes are for a GPU: fake CUDA, on a busy machine, gets as long as it takes."""
    return [sys.executable, script, "--dry-run", *build, "--module", MODULE, "--json", os.path.join(WORK, name + ".json"),
            "--minutes", "120", *more]


def gpu_check(name, *more, script=SCRIPT, build=("--build", BUILD), **env):
    done = subprocess.run(command(name, *more, script=script, build=build), env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    path = os.path.join(WORK, name + ".json")
    check(os.path.exists(path), done.stderr)
    return done.returncode, done.stdout + done.stderr, load(path)


def rows(document, part):
    return {row["name"]: row for row in document["parts"][part]["rows"]}


def goals(document):
    return {each["goal"]: each["pass"] for each in report.goals(document)}


def alone_all_well():
    code, said, found = gpu_check("well", "--python", program("python", PYTHON), PATH=with_tools())
    states = {name: part["state"] for name, part in found["parts"].items()}
    check(states == {**dict.fromkeys(gpu_check_script.NAMES, "done"), "pytorch": "failed"}, states, said)
    passes = [each["goal"] for each in found["goals"] if each["pass"]]
    for what in ("gradients, tf32, as on the cpu", "the same bits", "2 ranks on one GPU, loss as on the cpu"):
        check(what in passes, what, "is not in", passes)
    check(found["probe"]["GPU"] == "Fake GPU" and not found["measured"] and "on fake CUDA" in said, found["probe"])
    check(not any(each["pass"] for each in found["goals"] if each["part"] in ("speed", "accuracy", "profile")), "figures of fake CUDA")
    step = rows(found, "speed")["batch 4, bf16, graph"]
    check(step["min"] <= step["value"] <= step["max"] and step["n"] == 2, step)
    check(step["sm_mhz"] in (1950, 1965, 1980) and step["celsius"] == 45, "idle samples count", step)
    sums = rows(found, "nccl")
    for n in (2, 3):
        check(sums["%d ranks on one GPU, sums in a graph" % n]["value"].startswith("works: %d ranks on one GPU" % n), sums)
    for name in ("2 ranks on one GPU, loss", "3 ranks on one GPU, uneven batches", "a stopped peer on one GPU, graph",
                 "a stopped peer on one GPU, calls"):
        check("value" in sums.get(name, {}), name, "is not in", said)
    check(sums["experiment: 2 ranks on one GPU"]["value"].startswith("works: 2 ranks on one Fake GPU"), sums)
    check(set(rows(found, "gemm")) == {"f32", "tf32", "bf16"}, found["parts"]["gemm"])
    sanitized = rows(found, "sanitizer")
    check(sanitized["memcheck, three steps, graph"]["value"] and sanitized["racecheck, test_kernels"]["value"], sanitized)
    check(sanitized["initcheck, test_kernels"]["skipped"] == "compute-sanitizer: Device not supported", sanitized)
    check("Barrier error" in sanitized["synccheck, test_kernels"]["failed"] and code == 1 and not found["passed"], sanitized)
    kernels = rows(found, "profile")
    check(0 < kernels["longest chain, mnist, bf16"]["value"] <= kernels["nodes, mnist, bf16"]["value"], kernels)
    check(kernels["nodes, mnist-mlp, bf16"]["value"] < kernels["nodes, mnist, bf16"]["value"], kernels)
    for precision, how in (("bf16", "best of 6"), ("tf32", "best of 6"), ("f32", "best of 2")):
        told = kernels["engines, " + precision]["value"].split("; ")
        named = [each for each in told if re.fullmatch(r"\d+/\d: conv2, [a-z ]+: .*" + how + r", [\d.]+ [kMG]?B", each)]
        check(named == told and len(told) == 3, precision, told)
    kernel = kernels["batch 4096, bf16: cutlass::Kernel2<cutlass_80_tensorop_bf16>"]
    about = [kernel[key] for key in ("value", "dram_mb", "launches", "tensor_percent")]
    check(max(abs(x - y) for x, y in zip(about, (8, 3, 2, 40))) < 1e-9, kernel)
    check(abs(kernels["batch 128, bf16: all kernels"]["value"] - 12) < 1e-9, "more than the step counts", kernels)
    torch = rows(found, "pytorch")
    check(torch["batch 4, bf16, eager"]["max"] == 500 and torch["batch 4, bf16, compile"]["skipped"] == "PyTorch: no", torch)
    check("ended with 9" in found["parts"]["pytorch"]["why"], found["parts"]["pytorch"])
    page = subprocess.run([sys.executable, SCRIPT, "--json", os.path.join(WORK, "well.json"), "--page", os.path.join(WORK, "gpu.md")],
                          capture_output=True, text=True)
    check(page.returncode == 1 and "nothing that was measured on a GPU" in page.stderr and not os.path.exists(WORK + "/gpu.md"), page)


def alone_refused():
    """A GPU that is too old for the program: each part says so, and the next begins."""
    parts = "speed,accuracy,agreement,same_bits,ranks"
    code, said, found = gpu_check("refused", "--parts", parts, FAKE_CAPABILITY="75")
    check(code == 1 and not found["passed"], "ended with", code)
    for part in parts.split(","):
        about = json.dumps(found["parts"][part])
        check("has compute capability 7.5" in about and '"value"' not in about, part, about)
    check("has compute capability 7.5" in said, said)


def alone_killed():
    """What was measured before a kill stays, is whole, and is not measured again; of another program it would be."""
    process = subprocess.Popen(command("killed", "--parts", "speed"), stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("speed ") and "tf32" in line:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    before = load(os.path.join(WORK, "killed.json"))
    check(before["parts"]["speed"]["state"] == "running" and len(rows(before, "speed")) >= 3, before["parts"])
    check(not before["passed"], "what was killed passed")
    code, said, after = gpu_check("killed", "--parts", "speed")
    check(code == 0 and after["parts"]["speed"]["state"] == "done" and "goes on where it was cut off" in said, said)
    check(len(rows(after, "speed")) == 6, after["parts"])
    for name, row in rows(before, "speed").items():
        check(rows(after, "speed")[name] == row and name not in said, name, "was measured again", said)
    code, said, cut = gpu_check("killed", "--parts", "accuracy", "--minutes", "0.002")
    check(code == 1 and cut["parts"]["accuracy"]["state"] == "cut" and cut["parts"]["speed"]["state"] == "done", said)
    check("in MNIST, 12 epochs, bf16: " in cut["parts"]["accuracy"]["why"] and "to go on: scripts/gpu-check --parts " in said, said)


def alone_terminated():
    """What it runs ends with it."""
    marker = os.path.join(WORK, "left")
    process = subprocess.Popen(command("terminated", "--parts", "pytorch", "--python", program("slow-python", """#!/bin/sh
case "$*" in -c*import\\ torch*) echo 2.11.0; exit ;; -c*) exec python3 "$@" ;; esac
echo '{"torch": "2.11.0"}'
sleep 4
touch '%s'
""" % marker)), stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("pytorch "):
            process.terminate()
            break
    check(process.wait() == 143, "ended with", process.returncode)
    check(load(os.path.join(WORK, "terminated.json"))["parts"]["pytorch"]["state"] == "running", "it came to its end")
    time.sleep(4.5)
    check(not os.path.exists(marker), "what it ran went on")


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
    check(code == 0 and found["passed"], "the installed dry run failed:", said)
    skipped = {name for name, part in found["parts"].items() if "an installation has no sources" in part["why"]}
    check(skipped == {"tests", "gemm", "nccl"}, found["parts"])
    check(found["parts"]["ranks"]["state"] == "done", said)
    left = [path for path, _, _ in os.walk(os.path.join(prefix, "share")) if path.endswith("__pycache__")]
    check(not left, "it writes beside itself:", left)


def several_gpus():
    code, said, found = gpu_check("several", "--parts", "nccl", FAKE_DEVICES="3")
    check(code == 0 and found["passed"], said)
    for name in ("2 ranks, loss", "3 ranks, loss", "3 ranks, sums in a graph", "3 ranks, uneven batches", "a stopped peer, graph",
                 "a stopped peer, calls"):
        check("value" in rows(found, "nccl").get(name, {}), name, "is not in", said)


def units_nothing_there():
    """No GPU, no program: each part says in a line what it lacks; nothing passes."""
    path, empty = os.path.join(WORK, "bare.json"), os.path.join(WORK, "empty")
    names = [name for name in gpu_check_script.NAMES if name != "build"]
    done = subprocess.run([sys.executable, SCRIPT, "--build", empty, "--json", path, "--parts", ",".join(names)],
                          env=dict(os.environ, CUDA_VISIBLE_DEVICES=""), capture_output=True, text=True)
    found = load(path)
    check(done.returncode == 1 and not found["passed"] and found["probe"]["GPU"] is None, done.stdout)
    for name in names:
        line = next(line for line in done.stdout.splitlines() if line.startswith("%-10s skipped in" % name))
        check("no GPU" in line and (name == "pytorch" or "no %s/dtrain (the part build makes it)" % empty in line), line)
    c = new_check()
    c.args.dry_run = False
    for row in gpu_check_script.PARTS[:1]:
        state, why = gpu_check_script.take(c, row[0], row[2])
        check((state, why) == ("skipped", "no cmake; no nvcc; no mpicc; no cuBLAS; no cuDNN; no NCCL"), state, why)
    shutil.rmtree(c.folder)


def best():
    """A check that met all goals."""
    parts = {"build": {"compile": True}, "tests": {"gpu_test_kernels": True}, "sanitizer": {"memcheck, test_kernels": True},
             "speed": {"batch 128, bf16, graph": 60.0, "batch 128, bf16, calls": 240.0, "batch 128, f32, graph": 200.0,
                       "batch 4096, bf16, graph": 1180.0},
             "gemm": {"f32": 50.0, "tf32": 400.0, "bf16": 790.0},
             "accuracy": {"MNIST, 12 epochs, " + p: 98.9 for p in report.LIMITS},
             "agreement": {"%s, %s" % (what, p): limit for p, limit in report.LIMITS.items() for what in ("gradients", "loss")},
             "same_bits": {"twice, f32": True, "with and without graph, bf16": True},
             "ranks": {"2 ranks on one GPU, loss": 1e-6}, "nccl": {"3 ranks, uneven batches": True, "2 ranks, loss": 1e-5},
             "profile": {"nodes, mnist, bf16": 17, "longest chain, mnist, bf16": 14, "nodes, mnist-mlp, bf16": 9},
             "pytorch": {"batch 128, bf16, eager": 480.0, "batch 128, bf16, graph": 100.0, "batch 128, bf16, autotune": 90.0,
                         "batch 128, f32, eager": 500.0}}
    units = {"speed": "us", "pytorch": "us", "gemm": "TFLOP/s", "accuracy": "%", "agreement": "of it", "ranks": "of it", "profile": "nodes"}

    def row(part, name, value):
        return {"name": name, "value": value, "unit": "" if isinstance(value, bool) else units.get(part, "of it")}

    document = {"schema": 1, "measured": True, "passed": False,
                "probe": {**dict.fromkeys(SCHEMA["properties"]["probe"]["required"]), "GPU": "NVIDIA H200", "GPUs": "1"},
                "parts": {part: {"state": "done", "seconds": 1, "program": "a", "why": "",
                                 "rows": [row(part, *each) for each in by.items()]} for part, by in parts.items()}}
    return concluded(document)


def concluded(document):
    return valid({**document, **report.conclusions(document)})


def changed(document, part, name, value):
    found = copy.deepcopy(document)
    rows(found, part)[name]["value"] = value
    return found


def units_goals():
    fine = best()
    check(set(goals(fine).values()) == {True} and fine["passed"], goals(fine))
    by_aim = {each["goal"]: each["aim_met"] for each in fine["goals"] if each["aim"] is not None}
    check(len(by_aim) == 4 and not any(by_aim.values()), by_aim)
    faster = {each["goal"]: each["aim_met"] for each in report.goals(changed(fine, "speed", "batch 128, bf16, graph", 40.0))}
    check(faster["step, batch 128, bf16"] and faster["PyTorch eager / dtrain, batch 128, bf16"], faster)
    for value, what, part, name in ((98.8, "MNIST, 12 epochs, tf32", "accuracy", "MNIST, 12 epochs, tf32"),
                                    (61.0, "step, batch 128, bf16", "speed", "batch 128, bf16, graph"),
                                    (470.0, "PyTorch eager / dtrain, batch 128, bf16", "pytorch", "batch 128, bf16, eager"),
                                    (89.0, "PyTorch's best / dtrain, batch 128, bf16", "pytorch", "batch 128, bf16, autotune"),
                                    (1190.0, "batch 4096, bf16: share of the peak", "speed", "batch 4096, bf16, graph"),
                                    (1.1e-5, "gradients, f32, as on the cpu", "agreement", "gradients, f32"),
                                    (float("nan"), "loss, tf32, as on the cpu", "agreement", "loss, tf32"),
                                    (False, "the same bits", "same_bits", "twice, f32"),
                                    (False, "3 ranks, uneven batches", "nccl", "3 ranks, uneven batches"),
                                    (23, "nodes, mnist, bf16", "profile", "nodes, mnist, bf16"),
                                    (2e-4, "2 ranks on one GPU, loss as on the cpu", "ranks", "2 ranks on one GPU, loss")):
        worse = changed(fine, part, name, value)
        check(goals(worse)[what] is False and not report.conclusions(worse)["passed"], what, "passes with", value)
        worse["parts"][part]["rows"] = []
        check(goals(worse).get(what) is not False, what, "fails where nothing was found")
    half = copy.deepcopy(fine)
    half["parts"]["build"]["state"] = "cut"
    check(goals(half)["it is built"] is None, "half a build is built")
    for state, passes in (("skipped", True), ("cut", False), ("failed", False), ("running", False)):
        other = copy.deepcopy(fine)
        other["parts"]["pytorch"]["state"] = state
        check(concluded(other)["passed"] is passes, state)
    other = copy.deepcopy(fine)
    other["parts"]["tests"]["rows"].append({"name": "gpu_test_step_graph", "failed": "no"})
    check(not concluded(other)["passed"], "a row that failed passes")


def units_ratios_and_page():
    fine = best()
    by = fine["pytorch_time_by_dtrain_time"]
    check(by == {"128": {"bf16": {"eager": 8.0, "graph": 100 / 60, "autotune": 1.5, "best": 1.5}, "f32": {"eager": 2.5, "best": 2.5}}}, by)
    check(fine["peak"] == {"bf16_tflops": 989, "source": "datasheet of the H200"}, fine["peak"])
    unknown = copy.deepcopy(fine)
    unknown["probe"]["GPU"] = "NVIDIA of next year"
    check(report.peak(unknown)["bf16_tflops"] == 790 and report.peak(unknown)["source"].startswith("measured"), report.peak(unknown))
    flop = 4096 * (3 * 2 * (26 * 26 * 32 * 9 + 24 * 24 * 64 * 288 + 9216 * 128 + 128 * 10) - 2 * 26 * 26 * 32 * 9)
    share = next(each["value"] for each in fine["goals"] if "share of the peak" in each["goal"])
    check(abs(share - 100 * flop / 1180e-6 / 989e12) < 1e-7, share)
    rows(fine, "speed")["batch 128, bf16, graph"].update(min=58.5, max=63.25, sm_mhz=1980, celsius=44)
    fine["parts"]["ranks"].update(state="cut", why="cut off after 480 s in dtrain")
    path = os.path.join(WORK, "best.json")
    with open(path, "w") as file:
        json.dump(valid(fine), file)
    subprocess.run([sys.executable, SCRIPT, "--json", path, "--page", os.path.join(WORK, "gpu.md")], check=True)
    with open(os.path.join(WORK, "gpu.md")) as file:
        page = file.read()
    for line in ("| speed | batch 128, bf16, graph | 60 us | 58.50 | 63.25 | 1980 | 44 |",
                 "| 128 | bf16 | 60.0 | 240.0 | 480.0 | 100.0 | - | 90.0 | 8.00 | 1.50 |",
                 "| step, batch 128, bf16 | 60 us | <= 60 | 40 | pass |", "| ranks | cut | cut off after 480 s in dtrain |", "| GPU | NVIDIA H200 |"):
        check(line in page.splitlines(), line, "is not in", page)


def new_check(**more):
    found = Check(argparse.Namespace(build=BUILD, module=MODULE, dry_run=True, python=sys.executable, data=WORK, **{"prebuilt": False, **more}))
    found.deadline = time.monotonic() + 400
    return found


def units_time_limit():
    """What a program had said when its time was over is kept; without time nothing begins."""
    c = new_check()
    said = []
    c.deadline = time.monotonic() + 3
    try:
        c.run(["sh", "-c", "echo said; sleep 300 & wait"], each=said.append)
        check(False, "no time limit")
    except Cut as why:
        check(why.output == "said\n" and said == ["said"] and str(why) == "in sh: said", why)
    marker = os.path.join(WORK, "begun")
    try:
        c.run(["touch", marker])
        check(False, "it begins without time")
    except Cut:
        check(not os.path.exists(marker), "it began without time")
    shutil.rmtree(c.folder)


def units_resume():
    """Goes on only with the same program and on the same GPU."""
    path = os.path.join(WORK, "resume.json")

    def begun(program="a", gpu="one"):
        found = record.Record(path, True, {**dict.fromkeys(SCHEMA["properties"]["probe"]["required"]), "GPU": gpu})
        return found, found.begin("speed", program)

    first, goes_on = begun()
    check(not goes_on, "there was nothing")
    first.add("speed", {"name": "x", "value": 1.5, "unit": "us"})
    first.add("speed", {"name": "y", "failed": "no"})
    second, goes_on = begun()
    check(goes_on and second.has("speed", "x") and not second.has("speed", "y"), load(path))
    check(not begun(program="b")[1] and not rows(load(path), "speed"), "rows of another program count")
    second, _ = begun()
    second.add("speed", {"name": "x", "value": 1.5, "unit": "us"})
    second.end("speed", "done", "", 1)
    check(not begun()[1], "what is done goes on")
    begun(program="")[0].add("speed", {"name": "x", "value": 1.5, "unit": "us"})
    check(not begun(program="")[1], "without a program there is nothing to go on with")
    begun()[0].add("speed", {"name": "x", "value": 1.5, "unit": "us"})
    check(not begun(gpu="another")[1] and os.path.exists(path + ".before"), "rows of another GPU count")


def units_libraries():
    """cuBLAS of a wheel, by the names that the linker and the loader look for; cuDNN where it is."""
    site = os.path.join(WORK, "site", "nvidia")
    for path in ("cu13/include/cublas_v2.h", "cu13/include/cuda_runtime.h", "cu13/lib/libcublas.so.13", "cu13/lib/libcublasLt.so.13",
                 "cudnn/include/cudnn.h", "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2"):
        os.makedirs(os.path.dirname(os.path.join(site, path)), exist_ok=True)
        with open(os.path.join(site, path), "w") as file:
            file.write(path)
    wheels = probe.wheels_of([os.path.join(WORK, "site")])
    check(probe.find("nccl.h", "libnccl", wheels) is None, "a library without its header")
    c = new_check()
    c.probe = {name: "%s, %s" % probe.find(*probe.LIBRARIES[name], wheels) for name in ("cuBLAS", "cuDNN")}
    c.probe["NCCL"] = "/opt/nccl/include, /opt/nccl/lib/libnccl.so"
    links = os.path.join(WORK, "links")
    for _ in range(2):  # also where they are already
        told, env = probe.libraries_for_build(c, links)
        check(told == ["-DCUDNN_ROOT=%s/cudnn" % site, "-DNCCL_ROOT=/opt/nccl", "-DCMAKE_LIBRARY_PATH=%s/lib" % links], told)
        check(env["CPATH"].split(":")[0] == links + "/include", env)
        names = sorted(os.listdir(links + "/lib"))
        check(names == ["libcublas.so", "libcublas.so.13", "libcublasLt.so", "libcublasLt.so.13"], names)
        check(os.listdir(links + "/include") == ["cublas_v2.h"], "the toolkit's own headers are hidden")
    with open(links + "/lib/libcublas.so") as file:
        check(file.read() == "cu13/lib/libcublas.so.13", "a link to something else")
    c.probe["cuBLAS"] = "/usr/local/cuda/include, /usr/local/cuda/lib64/libcublas.so"
    check(probe.libraries_for_build(c, WORK + "/none")[1] == {} and not os.path.exists(WORK + "/none"), "links where none is needed")
    shutil.rmtree(c.folder)


def units_prebuilt():
    """What was built elsewhere: nothing is compiled, its tests are started one by one, and the libraries are found."""
    c = new_check(json=os.path.join(WORK, "prebuilt.json"), parts=["build", "tests"], prebuilt=True)
    c.args.dry_run, c.args.module, c.args.build = False, None, os.path.join(WORK, "prebuilt")
    os.makedirs(os.path.join(c.args.build, "tests", "gpu"))
    for name, text in (("dtrain", 'echo "dtrain 1, $LD_LIBRARY_PATH"'), ("libdtrain_cuda.so", ""), ("tests/gpu/gpu_test_kernels", "exit 0"),
                       ("tests/gpu/gpu_test_no_gpu", "exit 77"), ("tests/gpu/gpu_test_wrong", "exit 1")):
        program(os.path.join("prebuilt", name), "#!/bin/sh\n" + text + "\n")
    c.dtrain = os.path.join(c.args.build, "dtrain")
    c.probe = {**dict.fromkeys(SCHEMA["properties"]["probe"]["required"]), "GPU": "one", "cuBLAS": "/w/cublas/include, /w/cublas/lib/l.so",
               "cuDNN": "/w/cudnn/include, /w/cudnn/lib/l.so", "NCCL": "/w/nccl/include, /w/nccl/lib/l.so"}
    probe.use_libraries(c)
    c.record = record.Record(c.args.json, True, c.probe)
    for row in gpu_check_script.PARTS[:2]:
        c.part = row[0].__name__
        c.record.begin(c.part, "a")
        state, why = gpu_check_script.take(c, row[0], row[2])
        check((state, why) == ("done", ""), c.part, state, why)
        c.record.end(c.part, state, why, 1)
    found = load(c.args.json)
    check(rows(found, "build")["program and module"]["value"] is True, found)
    check(rows(found, "build")["version"]["value"].startswith("dtrain 1, /w/cublas/lib:/w/cudnn/lib:/w/nccl/lib"), found)
    tested = rows(found, "tests")
    check(tested["gpu_test_kernels"]["value"] is True and "skipped" in tested["gpu_test_no_gpu"]["failed"], tested)
    check("ended with 1" in tested["gpu_test_wrong"]["failed"] and len(tested) == 3, tested)
    shutil.rmtree(c.folder)


def units_graph():
    dot = 'digraph dot {\nsubgraph cluster_1 {\nlabel="graph_1" graph[style="dashed"];\n'
    dot += "".join('"graph_1_node_%d"[style="solid" shape="rectangle" label="%d\nkernel\n"];\n' % (i, i) for i in range(5))
    dot += "".join('"graph_1_node_%d" -> "graph_1_node_%d"[headlabel=0];\n' % edge for edge in ((0, 4), (4, 1), (1, 2), (0, 2))) + "}\n}\n"
    check(tools.nodes_and_chain(dot) == (5, 4), tools.nodes_and_chain(dot))
    check({each[:2] for each in torch_steps.ORDER[:8]} == {(128, "bf16"), (4096, "bf16")}, "the wanted ones are not the first")
    check(len(set(torch_steps.ORDER)) == len(torch_steps.ORDER) == 36, torch_steps.ORDER)


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
print("gpu-check: ok" + ("" if Draft202012Validator else " (python3-jsonschema is not installed: the schema was not used)"))
