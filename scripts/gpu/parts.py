"""The parts of gpu-check: each runs something and puts what it found into the figures. report.py says what is good enough.

PARTS is their order and how many seconds each may take; what earlier ones leave over, later ones may use.
"""
import json
import os
import re
import shutil
import statistics
import subprocess

from gpu.check import HERE, TOP, Failed, Skipped, gist
from gpu.report import BATCHES, LIMITS

PRECISIONS = tuple(LIMITS)


def build(c):
    c.needs_sources()
    if c.args.dry_run:
        return c.put(os.access(c.dtrain, os.X_OK) and os.path.exists(c.args.module), "build")
    command = ["cmake", "-S", TOP, "-B", c.args.build, "-DCMAKE_BUILD_TYPE=Release", "-DDTRAIN_WITH_CUDA=ON"]
    command += ["-G", "Ninja"] if shutil.which("ninja", path=c.env["PATH"]) else []
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([c.args.python, "-c", where], capture_output=True, text=True)
    for package, header, variable in (("cudnn", "cudnn.h", "CUDNN_ROOT"), ("nccl", "nccl.h", "NCCL_ROOT")):
        root = os.path.join(site.stdout.strip(), "nvidia", package)
        if os.path.exists(os.path.join(root, "include", header)):
            command.append("-D%s=%s" % (variable, root))
    c.run(command)
    c.run(["cmake", "--build", c.args.build, "--parallel", str(os.cpu_count()), "--target", "dtrain", "dtrain_cuda", "gpu_tests"])
    c.put(True, "build")


def machine(c):
    text = c.run([c.dtrain, "--version"])
    c.put(text.splitlines()[0], "machine", "dtrain")
    for name, version in re.findall(r"(CUDA|cuDNN|cuBLAS|NCCL) ([\d.]+)", text):
        c.put(version, "machine", name)
    if not c.args.dry_run and shutil.which("nvidia-smi", path=c.env["PATH"]):
        text = c.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"])
        for name, value in zip(("gpu", "driver", "clock", "power"), text.splitlines()[0].split(", ")):
            c.put(value, "machine", name)


def tests(c):
    c.needs_sources()
    if c.args.dry_run:
        raise Skipped("the double's own tests are the other tests")
    text = c.run(["ctest", "--test-dir", c.args.build, "-L", "gpu", "-LE", "experiment", "--no-tests=error", "--output-on-failure"])
    c.put("Skipped" not in text, "tests")


def accuracy(c):
    tiny = {"train.epochs": 1, "train.batch.per_rank": 8, "data.train_samples": 16, "data.test_samples": 8}
    for precision in PRECISIONS:
        with c.attempt(precision):
            _, epochs, _ = c.train({"precision": precision, **(tiny if c.args.dry_run else {})})
            c.put(100 * epochs[-1]["test_accuracy"], "accuracy", precision)


def step_ways(c):
    """How steps may be started, by name: by default that is one recorded CUDA graph; or call by call."""
    ways = {"default": {}}
    if re.search(r"^cuda\.graph\s", c.run([c.dtrain, "--help-config"]), re.M):
        ways["calls"] = {"cuda.graph": "false"}
    return ways


def speed(c):
    """Those first that are compared."""
    ways = step_ways(c)
    for batch in (4,) if c.args.dry_run else BATCHES:
        epochs, n = (2, 2 * batch) if c.args.dry_run else (4 if batch < 1024 else 20, 60000 // batch * batch)
        for precision in reversed(PRECISIONS):
            for way, settings in ways.items():
                with c.attempt("batch %d, %s, %s" % (batch, precision, way)):
                    _, records, _ = c.train({"precision": precision, "train.epochs": epochs, "train.batch.per_rank": batch,
                                             "data.train_samples": n, "data.test_samples": batch, **settings})
                    us = statistics.median(1e6 * batch / r["images_per_s"] for r in records[1:])
                    c.put(us, "step_us", str(batch), precision, way)


def gemm(c):
    text = c.run([c.program("gemm_rate"), *(["48"] if c.args.dry_run else [])])
    for precision, rate in re.findall(r"^(\w+) ([\d.]+)$", text, re.M):
        c.put(float(rate), "gemm_tflops", precision)


def agreement(c):
    """Gradients are the difference of two runs of one step with unlike rates. Smooth layers: no rounding error chooses a branch."""
    n = 8 if c.args.dry_run else 128
    smooth = {"model.layers.0.activation": "tanh", "model.layers.1.activation": "tanh", "model.layers.2.type": "avg_pool2d",
              "model.layers.5.activation": "tanh", "train.epochs": 1, "train.batch.per_rank": n, "data.train_samples": n,
              "data.test_samples": n, "train.optimizer.type": "sgd"}

    def gradients(**more):
        (_, epochs, one), (_, _, five) = (c.train({**smooth, **more, "train.optimizer.lr": lr}) for lr in (1, 5))
        return epochs[-1]["train_loss"], {k: [(x - y) / 4 for x, y in zip(one[k], five[k])] for k in one}

    loss, expected = gradients(device="cpu")
    for precision in PRECISIONS:
        with c.attempt(precision):
            own_loss, own = gradients(precision=precision)
            off = max(max(abs(x - y) for x, y in zip(own[k], e)) / max(map(abs, e)) for k, e in expected.items())
            c.put(off, "gradients_off", precision)
            c.put(abs(own_loss - loss) / loss, "loss_off", precision)


def same_bits(c):
    n = 4 if c.args.dry_run else 128
    ways = step_ways(c)
    for precision in PRECISIONS:
        settings = {"precision": precision, "train.epochs": 1, "train.max_steps": 2 if c.args.dry_run else 50,
                    "train.batch.per_rank": n, "data.train_samples": 50 * n, "data.test_samples": n}
        with c.attempt(precision):
            _, _, first = c.train(settings)
            c.put(c.train(settings)[2] == first, "same_bits", precision)
            if "calls" in ways:
                c.put(c.train({**settings, **ways["calls"]})[2] == first, "same_bits_by_calls", precision)


def ranks(c):
    """Two ranks on one GPU, and the same two on the CPU: ten steps, after which Adam has not yet blown rounding errors up."""
    n = 4 if c.args.dry_run else 64
    settings = {"train.epochs": 1, "train.batch.per_rank": n, "data.train_samples": 20 * n, "data.test_samples": 8,
                "distributed.check_every": 1}
    two = [c.mpiexec(), "-np", "2"]
    log, own, _ = c.train(settings, two, {"CUDA_VISIBLE_DEVICES": "0"})
    c.put("allreduce of gradients: " in log and ", staged" in log, "staged", "by_host_memory")
    _, expected, _ = c.train({**settings, "device": "cpu"}, two)
    expected = expected[-1]["train_loss"]
    c.put(abs(own[-1]["train_loss"] - expected) / expected, "staged", "loss_off")


def nccl(c):
    """An experiment: whatever comes of it, nothing fails."""
    try:
        text = c.run([c.mpiexec(), "-np", "2", c.program("nccl_one_gpu")], {"CUDA_VISIBLE_DEVICES": "0", "DTRAIN_TIMEOUT": "15"})
    except Failed as why:
        text = str(why)
    said = re.search(r"(works|refused): .*", text)
    c.put(said.group(0) if said else "failed: %s" % text, "nccl_on_one_gpu")


def sanitizer(c):
    tool = shutil.which("compute-sanitizer", path=c.env["PATH"] + ":/usr/local/cuda/bin")
    if c.args.dry_run or tool is None:
        raise Skipped("there is no compute-sanitizer")
    few = {"train.epochs": 1, "train.max_steps": 3, "data.train_samples": 384, "data.test_samples": 128}
    c.train(few, [tool, "--error-exitcode", "9"])
    c.put(True, "sanitizer")


def pytorch(c):
    """Also of a program that was stopped at its time limit, or ended badly, what it had measured until then counts."""
    failed = None
    small = ["--device", "cpu", "--batches", "4", "--precisions", "bf16", "--n-steps", "2"]
    command = [c.args.python, os.path.join(HERE, "gpu", "torch_steps.py"), *(small if c.args.dry_run else [])]
    try:
        text = c.run(command, {"TORCHINDUCTOR_CACHE_DIR": os.path.join(c.folder, "inductor")})
    except Failed as why:
        if why.code == 3:
            raise Skipped("PyTorch with CUDA is not there") from why
        text, failed = why.output, why
        c.put(str(why), "pytorch", "end")
    for found in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
        if "torch" in found:
            c.put(found, "pytorch", "versions")
        else:
            at = (str(found["batch"]), found["precision"], found["way"])
            c.put(found["us"] if "us" in found else found["error"], "pytorch", "step_us" if "us" in found else "errors", *at)
    if "step_us" not in c.figures.get("pytorch", {}):
        raise failed or Failed("no step of PyTorch was timed: %s" % gist(text))


PARTS = ((build, 150), (machine, 5), (tests, 60), (speed, 95), (gemm, 15), (accuracy, 45), (agreement, 45), (same_bits, 40),
         (ranks, 20), (nccl, 20), (sanitizer, 25), (pytorch, 50))
