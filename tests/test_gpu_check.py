#!/usr/bin/env python3
"""scripts/gpu-check without a GPU: the whole way on the double, with all well and with a GPU that is refused; what it makes of
figures; and that a program's output is kept when its time is over.

usage: test_gpu_check.py BUILD-FOLDER MODULE, the double as a module
"""
import argparse
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "scripts"))
from gpu import offline, parts, report  # noqa: E402
from gpu.check import Check, Failed  # noqa: E402

BUILD, MODULE = sys.argv[1:]
WORK = tempfile.mkdtemp(prefix="dtrain-test-gpu-check-")
BEST = {"accuracy": {"f32": 99.1, "tf32": 99.0, "bf16": 98.9}, "build": True, "tests": True, "sanitizer": True,
        "machine": {"gpu": "NVIDIA H200", "driver": "580.0", "CUDA": "13.0"},
        "step_us": {"128": {"bf16": {"default": 60.0, "calls": 240.0}, "f32": {"default": 200.0}},
                    "4096": {"bf16": {"default": 1180.0}}},
        "gemm_tflops": {"f32": 50.0, "tf32": 400.0, "bf16": 790.0},
        "gradients_off": {"f32": 1e-5, "tf32": 5e-3, "bf16": 2e-2}, "loss_off": {"f32": 1e-6, "tf32": 1e-4, "bf16": 2e-3},
        "same_bits": {"f32": True, "tf32": True, "bf16": True}, "same_bits_by_calls": {"bf16": True},
        "staged": {"by_host_memory": True, "loss_off": 1e-6}, "nccl_on_one_gpu": "works: 2 ranks",
        "pytorch": {"versions": {"torch": "2.11.0", "CUDA": "13.0", "cuDNN": 91900},
                    "step_us": {"128": {"bf16": {"eager": 480.0, "graph": 100.0, "autotune": 90.0}, "f32": {"eager": 500.0}}}}}


def check(condition, *about):
    if not condition:
        sys.exit("test_gpu_check: %s" % " ".join(map(str, about)))


def gpu_check(script=os.path.join(TOP, "scripts", "gpu-check"), build=("--build", BUILD), **env):
    path = os.path.join(WORK, "found.json")
    command = [sys.executable, script, "--dry-run", *build, "--module", MODULE, "--json", path]
    done = subprocess.run(command, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(os.path.exists(path), done.stderr)
    with open(path) as file:
        return done.returncode, done.stdout, json.load(file)


def goals(figures):
    return {c["check"]: c["pass"] for c in report.rows(figures, True) if c["goal"]}


def test_all_well():
    code, table, found = gpu_check()
    check(code == 0 and found["passed"], "the dry run failed:", table)
    check({p["part"] for p in found["problems"]} <= {"tests", "sanitizer", "pytorch"}, found["problems"])
    check(all(p["why"].startswith("skipped: ") for p in found["problems"]), found["problems"])
    passes = [g["check"] for g in found["goals"] if g["pass"]]
    for what in ("gradients as on the cpu, tf32", "same bits twice, bf16", "their loss as that of 2 ranks on the cpu"):
        check(what in passes, what, "is not in", passes)
    check(found["experiments"]["nccl_on_one_gpu"].startswith("works: 2 ranks on one Double of a GPU"), found["experiments"])
    check(found["machine"]["gpu"] == "Double of a GPU" and "cuDNN" in found["machine"], found["machine"])
    check("figures" not in found and "not measured" in table, "the double's figures are not measurements")


def test_goes_on():
    """A GPU that is too old for the program: each part says so."""
    code, table, found = gpu_check(FAKE_CAPABILITY="75")
    check(code == 1 and not found["passed"], "ended with", code)
    failed = [p for p in found["problems"] if p["why"].startswith("failed: ") and "has compute capability 7.5" in p["why"]]
    check({p["part"] for p in failed} == {"speed", "accuracy", "agreement", "same_bits", "ranks"}, found["problems"])
    check({p["what"] for p in failed if p["part"] == "accuracy"} == {"f32", "tf32", "bf16"}, failed)
    check("ranks " in table and "has compute capability 7.5" in table, table)


def test_installed():
    """The installed one checks the installed program, whatever the PATH has, and says what it skips."""
    prefix, wrong = os.path.join(WORK, "prefix"), os.path.join(WORK, "wrong")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    os.makedirs(wrong)
    os.symlink("/bin/false", os.path.join(wrong, "dtrain"))
    script = os.path.join(prefix, "share", "dtrain", "gpu-check")
    check(os.access(script, os.X_OK), "gpu-check is not installed as a program")
    code, table, found = gpu_check(script, (), PATH=wrong + ":" + os.environ["PATH"])
    check(code == 0 and found["passed"], "the installed dry run failed:", table)
    skipped = {p["part"] for p in found["problems"] if "takes the sources" in p["why"]}
    check(skipped == {"build", "tests", "gemm", "nccl"}, found["problems"])
    check("2 ranks share the GPU by host memory" in [g["check"] for g in found["goals"] if g["pass"]], table)
    left = [path for path, _, _ in os.walk(os.path.join(prefix, "share")) if path.endswith("__pycache__")]
    check(not left, "it writes beside itself:", left)


def test_goals():
    check(set(goals(BEST).values()) == {True}, goals(BEST))
    check(report.result(BEST, [], True)["passed"], "all goals are met")
    check(report.result(BEST, [("pytorch", "", "skipped: it is not there")], True)["passed"], "what is skipped does not fail")
    check(not report.result(BEST, [("speed", "", "failed: no")], True)["passed"], "what fails does")
    for value, what, *names in ((98.8, "MNIST, 12 epochs, bf16", "accuracy", "bf16"),
                                (61.0, "step, batch 128, bf16", "step_us", "128", "bf16", "default"),
                                (470.0, "PyTorch eager / dtrain, batch 128, bf16", "pytorch", "step_us", "128", "bf16", "eager"),
                                (89.0, "PyTorch's best / dtrain, batch 128, bf16", "pytorch", "step_us", "128", "bf16", "autotune"),
                                (1190.0, "batch 4096, bf16: share of the peak", "step_us", "4096", "bf16", "default"),
                                (1.1e-5, "gradients as on the cpu, f32", "gradients_off", "f32"),
                                (float("nan"), "loss as on the cpu, tf32", "loss_off", "tf32"),
                                (False, "same bits twice, tf32", "same_bits", "tf32"),
                                (2e-4, "their loss as that of 2 ranks on the cpu", "staged", "loss_off")):
        figures = copy.deepcopy(BEST)
        at = figures
        for name in names[:-1]:
            at = at[name]
        at[names[-1]] = value
        check(goals(figures)[what] is False and not report.result(figures, [], True)["passed"], what, "passes with", value)
        del at[names[-1]]
        check(goals(figures).get(what) is not False, what, "fails where nothing was found")
    check(set(goals({}).values()) == {None}, goals({}))


def test_ratios_and_peak():
    found = report.result(BEST, [], True)
    ratios = found["pytorch_time_by_dtrain_time"]
    check(ratios == {"128": {"bf16": {"eager": 8.0, "graph": 100 / 60, "autotune": 1.5, "best": 1.5},
                             "f32": {"eager": 2.5, "best": 2.5}}}, ratios)
    check(found["peak"] == {"bf16_tflops": 989, "source": "datasheet of the H200"}, found["peak"])
    unknown = copy.deepcopy(BEST)
    unknown["machine"]["gpu"] = "NVIDIA of next year"
    peak = report.peak(unknown)
    check(peak["bf16_tflops"] == 790 and peak["source"].startswith("measured"), peak)
    by_share = {c["check"]: c["value"] for c in report.rows(BEST, True)}
    flop = 4096 * (3 * 2 * (26 * 26 * 32 * 9 + 24 * 24 * 64 * 288 + 9216 * 128 + 128 * 10) - 2 * 26 * 26 * 32 * 9)
    check(abs(by_share["batch 4096, bf16: share of the peak"] - 100 * flop / 1180e-6 / 989e12) < 1e-7, by_share)
    check(abs(by_share["batch 4096, bf16: share of that rate"] - 100 * flop / 1180e-6 / 790e12) < 1e-7, by_share)
    table = report.table(BEST, [("pytorch", "", "failed: python3 was over its time limit")], True)
    line = next(line.split() for line in table.splitlines() if line.split()[:2] == ["128", "bf16"])
    check(line == ["128", "bf16", "60.0", "240.0", "480.0", "100.0", "-", "90.0", "8.00", "1.50"], table)
    check("over its time limit" in table and "NVIDIA H200" in table and "FAIL" not in table, table)
    print(table)


def new_check(**more):
    found = Check(argparse.Namespace(build=BUILD, module=MODULE, dry_run=True, python=sys.executable, **more))
    found.deadline = time.monotonic() + 400
    return found


def test_time_limit():
    """What a program had said when its time was over is kept; without time nothing begins."""
    c = new_check()
    c.deadline = time.monotonic() + 5
    try:
        c.run(["sh", "-c", "echo said; sleep 300 & wait"])
        check(False, "no time limit")
    except Failed as why:
        check(why.code is None and why.output == "said\n" and "sh was over its time limit: said" in str(why), why)
    marker = os.path.join(WORK, "begun")
    with c.attempt("late"):
        c.run(["touch", marker])
    check(c.problems == [("", "late", "failed: no time was left for touch")] and not os.path.exists(marker), c.problems)
    shutil.rmtree(c.folder)


def test_pytorch_is_read():
    """Figures of a program that ended badly after some of its lines; then of the real one on the CPU, where there is PyTorch."""
    c = new_check()
    c.args.python = os.path.join(WORK, "python")
    with open(c.args.python, "w") as file:
        file.write("""#!/bin/sh
echo '{"torch": "2.11.0"}'
echo a warning
echo '{"batch": 128, "precision": "bf16", "way": "eager", "us": 480}'
echo '{"batch": 128, "precision": "bf16", "way": "graph", "error": "no"}'
exit 9
""")
    os.chmod(c.args.python, 0o755)
    parts.pytorch(c)
    check(c.figures["pytorch"].pop("end").startswith("python ended with 9"), c.figures)
    check(c.figures["pytorch"] == {"versions": {"torch": "2.11.0"}, "step_us": {"128": {"bf16": {"eager": 480}}},
                                   "errors": {"128": {"bf16": {"graph": "no"}}}}, c.figures)
    shutil.rmtree(c.folder)
    c = new_check()
    with c.attempt("PyTorch"):
        parts.pytorch(c)
        check(set(c.figures["pytorch"]["step_us"]["4"]["bf16"]) >= {"eager", "compile"}, c.figures)
    check(not c.problems or c.problems[0][2] == "skipped: PyTorch with CUDA is not there", c.problems)
    shutil.rmtree(c.folder)


def test_unpacking():
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
    if name.startswith("test_"):
        test()
shutil.rmtree(WORK)
print("gpu-check: ok")
