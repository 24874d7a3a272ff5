"""The parts of gpu-check that need no other tools (those are in tools.py): each measures rows. report.py has the goals."""
import glob
import json
import os
import re
import shutil

from gpu import probe
from gpu.check import TOP, Failed, Skipped
from gpu.report import BATCHES, LIMITS

PRECISIONS = tuple(LIMITS)


BUILT = ("dtrain", "libdtrain_cuda.so", "tests/gpu/gpu_test_kernels")


def build(c):
    """Builds in a folder that stays: unchanged files are not compiled again."""
    def configure():
        arguments, env = probe.libraries_for_build(c, os.path.join(c.args.build, "cuda-libraries"))
        c.env.update(env)
        generator = ["-G", "Ninja"] if shutil.which("ninja", path=c.env["PATH"]) else []
        c.run(["cmake", "-S", TOP, "-B", c.args.build, "-DCMAKE_BUILD_TYPE=Release", "-DDTRAIN_WITH_CUDA=ON", *generator, *arguments])
        return True

    def version():
        return "; ".join(re.findall(r"^(?:dtrain| +GPU).*", c.run([c.dtrain, "--version"]), re.M))

    def compile_all():
        c.run(["cmake", "--build", c.args.build, "--parallel", str(os.cpu_count()), "--target", "dtrain", "dtrain_cuda", "gpu_tests"])
        return True

    if c.args.prebuilt:
        c.measure("program and module", "", lambda: all(os.path.exists(os.path.join(c.args.build, name)) for name in BUILT))
        return c.measure("version", "", version)
    if c.args.dry_run:
        return c.measure("program and module", "", lambda: os.access(c.dtrain, os.X_OK) and os.path.exists(c.args.module))
    c.measure("configure", "", configure)
    c.measure("compile", "", compile_all)
    c.measure("version", "", version)


def test_programs(c):
    """Runs the test programs of another machine's build, whose CTest files have that machine's paths."""
    def test(path):
        try:
            c.run([path])
        except Failed as why:
            raise Failed("it was skipped: " + why.output) if why.code == 77 else why
        return True

    for path in sorted(glob.glob(os.path.join(c.args.build, "tests", "gpu", "gpu_test_*"))):
        c.measure(os.path.basename(path), "", test, path)


def tests(c):
    """Runs the tests with the label gpu, one row each."""
    if c.args.prebuilt:
        return test_programs(c)
    listed = c.run(["ctest", "--test-dir", c.args.build, "-L", "gpu", "-LE", "experiment", "--show-only=json-v1"])
    names = [each["name"] for each in json.loads(listed[listed.index("{"):])["tests"]]

    def test(name):
        text = c.run(["ctest", "--test-dir", c.args.build, "-R", "^%s$" % name, "--output-on-failure"])
        if re.search(r"\(Skipped\)|\*\*\*Skipped", text):
            raise (Skipped if c.args.dry_run else Failed)("it was skipped")
        return True

    for name in names:
        c.measure(name, "", test, name)


def accuracy(c):
    tiny = {"train.epochs": 1, "train.batch.per_rank": 8, "data.train_samples": 16, "data.test_samples": 8}

    def percent(precision):
        _, epochs, _ = c.train({"precision": precision, **(tiny if c.args.dry_run else {})})
        return 100 * epochs[-1]["test_accuracy"]

    for precision in reversed(PRECISIONS):
        c.measure("MNIST, 12 epochs, " + precision, "%", percent, precision)


WAYS = {"graph": {}, "calls": {"cuda.graph": "false"}}  # how steps are started: by default as one recorded CUDA graph


def speed(c):
    """Times the compared settings first."""
    def times(batch, precision, way):
        epochs, n = (3, 2 * batch) if c.args.dry_run else (21, 60000 // batch * batch)
        _, records, _ = c.train({"precision": precision, "train.epochs": epochs, "train.batch.per_rank": batch,
                                 "data.train_samples": n, "data.test_samples": batch, **WAYS[way]})
        return [1e6 * batch / r["images_per_s"] for r in records[1:]]

    for batch in (4,) if c.args.dry_run else BATCHES:
        for precision in reversed(PRECISIONS):
            for way in WAYS:
                c.measure("batch %d, %s, %s" % (batch, precision, way), "us", times, batch, precision, way)


def gemm(c):
    """Runs one program for all precisions, and records rows as it prints them."""
    def note(line):
        found = re.fullmatch(r"(\w+) ([\d.]+) \(([\d.]+) to ([\d.]+)\)", line)
        if found:
            rate, least, most = map(float, found.groups()[1:])
            c.measure(found.group(1), "TFLOP/s", lambda: {"value": rate, "min": least, "max": most})

    c.run([c.test_program("gemm_rate"), *(["48"] if c.args.dry_run else [])], each=note)


def agreement(c):
    """Computes gradients as the difference of two one-step runs with different rates. Smooth layers: no rounding selects a branch."""
    n = 8 if c.args.dry_run else 128
    smooth = {"model.layers.0.activation": "tanh", "model.layers.1.activation": "tanh", "model.layers.2.type": "avg_pool2d",
              "model.layers.5.activation": "tanh", "train.epochs": 1, "train.batch.per_rank": n, "data.train_samples": n,
              "data.test_samples": n, "train.optimizer.type": "sgd"}

    def gradients(**more):
        (_, epochs, one), (_, _, five) = (c.train({**smooth, **more, "train.optimizer.lr": lr}) for lr in (1, 5))
        return epochs[-1]["train_loss"], {k: [(x - y) / 4 for x, y in zip(one[k], five[k])] for k in one}

    loss, expected = gradients(device="cpu")
    for precision in PRECISIONS:
        own = {}  # for both rows, from the same two runs

        def gradients_off(precision=precision, own=own):
            own["loss"], found = gradients(precision=precision)
            return max(max(abs(x - y) for x, y in zip(found[k], e)) / max(map(abs, e)) for k, e in expected.items())

        c.measure("gradients, " + precision, "of the largest", gradients_off)
        if "loss" in own:
            c.measure("loss, " + precision, "of it", lambda own=own: abs(own["loss"] - loss) / loss)


def same_bits(c):
    n = 4 if c.args.dry_run else 128

    def weights(precision, way):
        return c.train({"precision": precision, "cuda.deterministic": "true", "train.epochs": 1,
                        "train.max_steps": 2 if c.args.dry_run else 50, "train.batch.per_rank": n, "data.train_samples": 50 * n,
                        "data.test_samples": n, **WAYS[way]})[2]

    for precision in PRECISIONS:
        c.measure("twice, " + precision, "", lambda: weights(precision, "graph") == weights(precision, "graph"))
        c.measure("with and without graph, " + precision, "", lambda: weights(precision, "graph") == weights(precision, "calls"))


def loss_off(c, settings, n_ranks, env=None, before=()):
    """Loss of n ranks on GPUs relative to the CPU's, and the log. before: words before the program's name."""
    log, own, _ = c.train(settings, [*c.ranks(n_ranks), *before], env)
    _, expected, _ = c.train({**settings, "device": "cpu"}, c.ranks(n_ranks))
    expected = expected[-1]["train_loss"]
    return abs(own[-1]["train_loss"] - expected) / expected, log


def ten_steps(c):
    """Few enough steps that Adam has not yet amplified rounding errors."""
    n = 4 if c.args.dry_run else 64
    return {"train.epochs": 1, "train.batch.per_rank": n, "train.max_steps": 10, "data.train_samples": 20 * n, "data.test_samples": 8,
            "distributed.check_every": 1}


def ranks(c):
    """Two ranks on one GPU, through host memory."""
    def by_host_memory():
        off, log = loss_off(c, ten_steps(c), 2, {"CUDA_VISIBLE_DEVICES": "0", "FAKE_DEVICES": "1"})
        if not ("allreduce of gradients: " in log and ", staged" in log):
            raise Failed("the two ranks did not add by host memory")
        return off

    c.measure("2 ranks on one GPU, loss", "of it", by_host_memory)
