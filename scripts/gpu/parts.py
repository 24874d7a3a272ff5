"""The parts of gpu-check, and their order. Each reports rows; a row's number is the seconds that it may take."""
import csv
import functools
import importlib.metadata
import json
import os
import re
import sys
import time

from gpu.kit import Fault, gist

PYTORCH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "torch_steps.py")
LIMITS = {"bf16": 2e-2, "tf32": 5e-3, "f32": 1e-5}  # largest error of gradients and losses, by precision
RANKS_LIMIT = 1e-4  # and of the loss of ten steps of several ranks
CALLS, FIRST_ENGINES = {"cuda.graph": "false"}, {"cuda.deterministic": "true"}
FUSIONS = ("first_conv", "head", "packed", "branch", "engine_trial", "steps")
# 21 steps an epoch, the last one short: tables of up to 16 steps and two graphs, so that the host goes on by the count that the GPU
# writes into its memory.
FEW = {"train.epochs": 2, "data.train_samples": 2610, "data.test_samples": 256}
ONE_STEP = {"train.epochs": 1, "train.max_steps": 1, "data.train_samples": 384, "data.test_samples": 4, "precision": "bf16",
            **FIRST_ENGINES}
RUNGS = (  # configuration, precision, how steps are started, engines: the first that breaks says what breaks
    "mnist f32 calls first", "mnist f32 graph first", "mnist bf16 calls first", "mnist bf16 graph first", "mnist tf32 graph first",
    "mnist bf16 graph timed", "mnist f32 graph timed", "mnist-mlp bf16 graph timed", "lenet bf16 graph timed",
    "three_convs bf16 graph timed", "cifar-resnet20 bf16 graph first")
MACHINE = '. /etc/os-release; echo "$PRETTY_NAME, $(nproc) cores, $(sed -n "s/^model name.*: //p" /proc/cpuinfo | head -n 1)"'
FACTS = """nvidia-smi -q; nvidia-smi conf-compute -f; uname -a; lscpu; free -g; df -h / /tmp /dev/shm; ulimit -a; ldd --version
cat /etc/hosts; ls -l /usr/local /usr/local/cuda/lib64; python3 -m pip list; echo "$LD_LIBRARY_PATH"; ldd bin/dtrain bin/gpu_*; true"""


# ---- what is there

def facts(c):
    c.row("date", 0, time.strftime, "%Y-%m-%d")
    c.row("built from", 1, c.call, "cat", os.path.join(c.work, "commit"))
    if c.fake:
        c.say("GPU", "fake", "fake CUDA, so that no figure means anything")
    else:
        c.row("GPU", 10, lambda: c.call(c.tool("nvidia-smi"), "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit",
                                        "--format=csv,noheader"))
    c.row("machine", 5, c.call, "sh", "-c", MACHINE)
    c.row("PyTorch", 5, lambda: next((found.version for found in importlib.metadata.distributions(name="torch")), "none"))
    c.row("program", 60, lambda: "; ".join(re.findall(r"^(?:dtrain| +(?:GPU|devices)).*", c.call(c.bin("dtrain"), "--version"), re.M)))
    c.row("more in all.log", 25, lambda: c.call("sh", "-c", FACTS) and None)


def ladder(c):
    def accuracy(config, settings, env=()):
        return "test accuracy %.2f %%" % (100 * c.train(settings, config, env=env)[1][-1]["test_accuracy"])

    broken, n_late = [], 0
    c.row("mnist on the CPU", 40, accuracy, "mnist.json", {**FEW, "device": "cpu"})
    for rung in RUNGS:
        if len(broken) == 3 or n_late == 2:
            c.say(rung, "not begun", "enough is broken")
            continue
        config, precision, way, which = rung.split()
        settings = {**FEW, "precision": precision, **(CALLS if way == "calls" else {}), **(FIRST_ENGINES if which == "first" else {}),
                    **({"train.batch.per_rank": 64, "train.warmup_epochs": 0} if "resnet" in config else {})}
        limit = 60 if rung in (RUNGS[0], RUNGS[-1]) else 20  # the first loads the libraries; many layers have many plans
        if c.row(rung, limit, accuracy, config + ".json", settings) is None:
            broken.append((rung, config + ".json", settings))
            c.failed[rung] = functools.partial(c.training, settings, config + ".json")
            n_late += c.here.verdict == "CUT"
    for rung, *training in broken[:1]:  # once more, with the libraries' own words
        logs = {key: os.path.join(c.work, key) for key in ("CUDNN_LOGDEST_DBG", "CUBLAS_LOGDEST_DBG", "CUDA_LOG_FILE")}
        c.row(rung + ", with logs", 25, accuracy, *training, {"CUDNN_LOGLEVEL_DBG": "3", "CUBLAS_LOGINFO_DBG": "1", **logs})
        c.row(rung + ", with waits", 25, accuracy, *training, {"CUDA_LAUNCH_BLOCKING": "1"})
        c.row("these logs are in all.log", 5, lambda: c.call("tail", "-c", "90000", *filter(os.path.exists, logs.values())) and None)


# ---- what must be right

def test(c, name, limit):
    if c.row(name, limit, lambda: c.call(c.bin(name)) and "passes") is None and c.here.verdict != "skipped":
        c.failed[name] = lambda: [c.bin(name)]


def kernels(c):
    """One after another: they wait thousands of times, and processes that take turns on a GPU make each wait long."""
    for name in ("kernels", "cuda_errors"):
        test(c, "gpu_test_" + name, 40)


def plans(c):
    """Mostly cuDNN's heuristics, on the CPU."""
    c.at_once(test, [(c, "gpu_test_" + name, 110) for name in ("cuda_blocks", "step_graph")])


def agreement(c):
    """Gradients are the difference of two single steps with different rates. Smooth layers: no rounding selects a branch."""
    smooth = {"model.layers.0.activation": "tanh", "model.layers.1.activation": "tanh", "model.layers.2.type": "avg_pool2d",
              "model.layers.5.activation": "tanh", "train.epochs": 1, "train.max_steps": 1, "data.train_samples": 128,
              "data.test_samples": 128, "train.optimizer.type": "sgd"}

    def gradients(**more):
        (_, epochs, one), (_, _, five) = (c.train({**smooth, **more, "train.optimizer.lr": lr}) for lr in (1, 5))
        return epochs[-1]["train_loss"], {name: [(x - y) / 4 for x, y in zip(one[name], five[name])] for name in one}

    loss, expected = gradients(device="cpu")

    def error(precision):
        """The largest: of the loss, and of gradients by the largest of their tensor."""
        own_loss, found = gradients(precision=precision)
        errors = [max(abs(x - y) for x, y in zip(found[name], e)) / max(map(abs, e)) for name, e in expected.items()]
        return max(*errors, abs(own_loss - loss) / loss)

    for precision, limit in LIMITS.items():
        c.row("gradients and loss, " + precision, 30, error, precision, most=limit)


def same_bits(c):
    def weights(precision, way):
        return c.train({"precision": precision, **FIRST_ENGINES, "train.epochs": 1, "train.max_steps": 50, "data.train_samples": 6400,
                        "data.test_samples": 128, **way})[2]

    for precision in LIMITS:
        for name, way in ("twice", {}), ("with and without graph", CALLS):
            c.row("%s, %s" % (name, precision), 25, lambda way=way: weights(precision, {}) == weights(precision, way))


# ---- alone on the GPU

def step_us(c, batch, precision, way=(), env=()):
    """Microseconds of a step in each epoch but the first."""
    epochs = c.train({"precision": precision, "train.epochs": 21, "train.batch.per_rank": batch, "data.test_samples": batch,
                      "data.train_samples": 60000 // batch * batch, **dict(way)}, env=env)[1]
    return [1e6 * batch / record["images_per_s"] for record in epochs[1:]]


def speed(c):
    for batch, precision, way in ((128, "bf16", "graph"), (4096, "bf16", "graph"), (128, "bf16", "calls"), (128, "f32", "graph"),
                                  (128, "tf32", "graph"), (4096, "tf32", "graph"), (4096, "f32", "graph")):
        c.row("batch %d, %s, %s" % (batch, precision, way), 25, step_us, c, batch, precision, {} if way == "graph" else CALLS, unit="us")


def without(c):
    """What each fusion gains: the variable leaves it out. The whole is timed twice, to show by what two runs differ."""
    try:
        c.train(FEW, env={"DTRAIN_CUDA_WITHOUT": "no_such_fusion"})
        raise Fault("this program does not know DTRAIN_CUDA_WITHOUT", "skipped")
    except Fault as why:
        if why.code != 64:  # refused as wrong usage
            raise
    for batch in (128, 4096):
        for title, name in ("all", ""), *(("without " + name, name) for name in FUSIONS), ("all again", ""):
            env = {"DTRAIN_CUDA_WITHOUT": name} if name else {}
            c.row("batch %d, %s" % (batch, title), 20, step_us, c, batch, "bf16", {}, env, unit="us")


def accuracy(c):
    for precision in LIMITS:
        c.row("MNIST, 12 epochs, " + precision, 30, lambda: 100 * c.train({"precision": precision})[1][-1]["test_accuracy"],
              unit="%", least=98.9)


def profile(c):
    """How many nodes a recorded step has; the kernels of one in their order. The first step of its kind goes call by call, in the range
    "step" of NVTX."""
    def nodes(config):
        path = os.path.join(c.work, config + ".dot")
        c.train({**ONE_STEP, "train.max_steps": 3}, config, env={"DTRAIN_CUDA_GRAPH": path})
        with open(path) as file:
            return len(set(re.findall(r'^\s*"(\w*node_\d+)"\s*\[', file.read(), re.M)))

    for config in ("mnist.json", "mnist-mlp.json"):
        c.row("nodes, %s, bf16" % config, 25, nodes, config)
    metrics = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "launch__grid_size",
               "launch__registers_per_thread")
    text = c.call(c.tool("ncu"), "--nvtx", "--nvtx-include", "step/", "--clock-control", "none", "--cache-control", "none", "--csv",
                  "--page", "raw", "--metrics", ",".join(metrics), *c.training(ONE_STEP), env={"DTRAIN_TIMEOUT": "600"})
    names, units, *rows = csv.reader(line for line in text.splitlines() if line.startswith('"'))
    for i, row in enumerate(rows, 1):
        found = [" ".join((row[names.index(name)], units[names.index(name)])).strip() for name in metrics]
        c.say("kernel %d" % i, "ok", "%s, read %s, written %s, %s blocks, %s: %s" % (*found, row[names.index("Kernel Name")]))


def engines(c):
    """Which of cuDNN's engines the convolutions use."""
    def ask(batch, precision):
        settings = {"precision": precision, "train.batch.per_rank": batch}
        text = c.call(c.bin("dtrain"), "bench", "model", *c.configured(settings), "--json", "-")
        found = "%(block)s, %(operation)s: number %(number)s, place %(place)s, best of %(best of)s, %(time)s us, %(workspace)s bytes"
        parts = json.loads(text[text.index("{"):text.rindex("}") + 1])["parts"]
        return "; ".join(found % row for part in parts if part.get("title") == "Engines" for row in part["rows"])

    for batch, precision in (128, "bf16"), (4096, "bf16"), (128, "tf32"), (128, "f32"), (4096, "f32"):
        c.row("batch %d, %s" % (batch, precision), 25, ask, batch, precision)


def rows_of(c, *command, env=(), pattern=r"^(.*)\t(.*)\t(.*)$", unit=""):
    """A row for each line of a program's output that has a name, numbers and perhaps their unit, also if the program ended badly."""
    def rows(text):
        for name, numbers, *own in re.findall(pattern, text, re.M):
            c.row(name, 0, lambda: [float(number) for number in numbers.split(", ")], unit=own[0] if own else unit)

    try:
        rows(c.call(*command, env=env))
    except Fault as why:
        rows(why.output)
        raise


def pytorch(c, cases=("128,bf16,eager", "128,bf16,graph", "4096,bf16,graph", "128,f32,graph")):
    rows_of(c, sys.executable, PYTORCH, *cases, env={"TORCHINDUCTOR_CACHE_DIR": os.path.join(c.work, "inductor")})


# ---- several ranks

def ranks(c):
    """On one GPU: their sums by way of host memory; then by NCCL, to which ranks with an NCCL_HOSTID of their own are on hosts of their
    own. train/device.c uses NCCL for ranks that share a GPU only with DTRAIN_SHARE_GPU."""
    one = {"CUDA_VISIBLE_DEVICES": "0"}
    env = {**one, "DTRAIN_SHARE_GPU": "1", "DTRAIN_TIMEOUT": "30"}
    apart = ["sh", "-c", 'NCCL_HOSTID="host-$PMI_RANK" exec "$0" "$@"']

    def loss_off(n_ranks, how, env, before=()):
        """Relative to the CPU's. how: what the log says of the sums."""
        settings = {"train.epochs": 1, "train.batch.per_rank": 64, "train.max_steps": 10, "data.train_samples": 1280,
                    "data.test_samples": 8, "distributed.check_every": 1}  # so few steps that Adam has not amplified rounding errors
        log, own, _ = c.train(settings, launcher=[*c.ranks(n_ranks), *before], env=env)
        if not re.search("allreduce of gradients: .*, " + how, log):
            raise Fault("the ranks' sums are not " + how)
        expected = c.train({**settings, "device": "cpu"}, launcher=c.ranks(n_ranks))[1][-1]["train_loss"]
        return abs(own[-1]["train_loss"] - expected) / expected

    def uneven():
        """Few steps: ranks that share a GPU take turns of milliseconds."""
        settings = {"train.batch": '{"global": 8}', "train.epochs": 2, "data.train_samples": 26, "data.test_samples": 8,
                    **FIRST_ENGINES}
        first, second = (c.train({**settings, **way}, launcher=[*c.ranks(3), *apart], env=env)[2] for way in ({}, CALLS))
        return first == second

    def stopped(way):
        """Behind its first epoch. The other rank must end by itself, with the exit code of a stall, and name the stopped one."""
        command = c.training({"train.epochs": 1000, "train.batch.per_rank": 4, "data.train_samples": 16, "data.test_samples": 8,
                              "distributed.timeout_s": 5, **way})
        stop = 'until grep -qs type...epoch "$0"; do sleep 0.1; done; kill -STOP $$'
        text = c.call(*c.ranks(2), "sh", "-c", '[ "$PMI_RANK" = 0 ] || { %s; } & exec "$@"' % stop, command[-1] + "/metrics.jsonl",
                      *apart, *command, env={**env, "DTRAIN_TIMEOUT": "5"}, fine=76)
        if "rank 1" not in text:
            raise Fault(gist(text))
        return "the other rank names it"

    def in_a_graph():
        return "; ".join(re.findall(r"works: .*", c.call(*c.ranks(2), c.bin("gpu_nccl_in_graph"), "one_gpu", env=env)))

    c.row("2 ranks through host memory, loss", 20, loss_off, 2, "staged", one, most=RANKS_LIMIT)
    c.row("2 ranks, sums by NCCL in a graph", 20, in_a_graph)
    for n in (2, 3):
        c.row("%d ranks by NCCL, loss" % n, 25, loss_off, n, "nccl", env, apart, most=RANKS_LIMIT)
    c.row("3 ranks by NCCL, uneven batches: same bits with and without graph", 25, uneven)
    c.row("a stopped rank, graph", 25, stopped, {})
    c.row("a stopped rank, call by call", 25, stopped, CALLS)


def scaling(c):
    """Ranks on the CPU's cores."""
    for n in (n for n in (1, 2, 4, 8, 16) if n <= os.cpu_count()):
        c.row("%d ranks on the CPU" % n, 25, lambda n=n: c.train(
            {"device": "cpu", "threads": 1, "train.epochs": 2, "data.train_samples": 3840 * n, "data.test_samples": 256},
            launcher=c.ranks(n))[1][-1]["images_per_s"], unit="images/s")


# ---- slow tools

def clean(c, tool, command):
    text = c.call(c.tool("compute-sanitizer"), "--tool", tool, "--report-api-errors", "no", "--print-limit", "20", "--error-exitcode",
                  "9", *command, env={"DTRAIN_TIMEOUT": "600"})
    if not re.search(r"ERROR SUMMARY: 0 errors|\(0 errors, 0 warnings\)", text):
        raise Fault("it does not say what it found: " + gist(text))


def debug(c):
    """What failed in this call, once more: where it stands when it ends, and which memory it touches."""
    if not c.failed:
        raise Fault("nothing failed in this call", "skipped")

    def where(command):
        return gist(c.call(c.tool("cuda-gdb"), "-batch", "-ex", "run", "-ex", "bt", "-ex", "info cuda kernels", "--args", *command))

    c.at_once(c.row, [job for name, command in list(c.failed.items())[:3] for job in (
        ("cuda-gdb: " + name, 60, where, command()), ("memcheck: " + name, 90, clean, c, "memcheck", command()))])


def sanitizer(c):
    steps = c.training({**ONE_STEP, "train.max_steps": 3})
    tests = [(tool, "kernels", [c.bin("gpu_test_kernels")]) for tool in ("racecheck", "memcheck", "initcheck")]
    c.at_once(c.row, [("%s, %s" % (tool, name), 110, clean, c, tool, command)
                      for tool, name, command in (("memcheck", "three steps", steps), *tests)])


PARTS = {  # each part's limit in seconds
    "facts": (60, facts), "ladder": (130, ladder), "kernels": (90, kernels), "plans": (110, plans), "agreement": (80, agreement),
    "same_bits": (100, same_bits), "speed": (60, speed), "without": (90, without), "accuracy": (45, accuracy), "profile": (60, profile),
    "engines": (60, engines), "edges": (20, lambda c: rows_of(c, c.bin("edges"))),
    "gemm": (20, lambda c: rows_of(c, c.bin("gpu_gemm_rate"), pattern=r"^(\w+) ([\d.]+) \(", unit="TFLOP/s")),
    "pytorch": (60, pytorch), "compile": (90, lambda c: pytorch(c, ("128,bf16,graph", "128,bf16,compile", "128,bf16,autotune"))),
    "debug": (90, debug), "ranks": (70, ranks), "sanitizer": (110, sanitizer), "scaling": (60, scaling),
}
# What a run does, first what the rest stands on. Those of a line are side by side, the others alone on the GPU.
RUN = [names.split(" + ") for names in (
    "facts", "ladder", "kernels", "plans + agreement + same_bits", "speed", "without", "accuracy", "profile", "engines", "edges", "gemm",
    "pytorch", "debug", "ranks", "sanitizer")]
ALIASES = {"tests": ("kernels", "plans")}
