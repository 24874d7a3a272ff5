"""The parts of gpu-check, in order: each reports rows."""
import contextlib
import glob
import json
import os
import re
import signal

from gpu.check import HERE, TOP, Cut, Failed, Skipped, gist

LIMITS = {"bf16": 2e-2, "tf32": 5e-3, "f32": 1e-5}  # largest error of gradients and losses, by precision
RANKS_LIMIT = 1e-4  # and of the loss of ten steps of several ranks
WAYS = {"graph": {}, "calls": {"cuda.graph": "false"}}  # how steps are started: by default as one recorded CUDA graph
FLOP_PER_SAMPLE = 3 * 23984896 - 389376  # forward, and twice that backward, without the gradient of the first layer's input
# Datasheets' bf16 rates in TFLOP/s, without sparsity; the first name that is in the GPU's counts.
PEAK_TFLOPS = {"B200": 2250, "H200 NVL": 835, "H200": 989, "H100 NVL": 835, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362,
               "L4": 121}
FEW = {"train.epochs": 1, "train.max_steps": 3}
SAME_ENGINES = {"cuda.deterministic": "true"}  # under tools that slow the GPU down, timing engines is meaningless
STALLED = 76  # exit code


def build(c):
    """Builds in a folder that stays: unchanged files are not compiled again."""
    def configure():
        roots = ["-D%s_ROOT=%s" % (name.upper(), os.path.dirname(c.there[name].split(", ")[0])) for name in ("cuDNN", "NCCL")]
        c.run(["cmake", "-S", TOP, "-B", c.args.build, "-DCMAKE_BUILD_TYPE=Release", "-DDTRAIN_WITH_CUDA=ON", *roots])
        return True

    def compile_all():
        c.run(["cmake", "--build", c.args.build, "--parallel", str(os.cpu_count()), "--target", "dtrain", "dtrain_cuda", "gpu_tests"])
        return True

    if not c.args.prebuilt and not c.args.dry_run:
        c.row("configure", "", configure)
        c.row("compile", "", compile_all)
    module = c.args.module or os.path.join(c.args.build, "libdtrain_cuda.so")
    c.row("program and module", "", lambda: os.access(c.dtrain, os.X_OK) and os.path.exists(module))
    c.row("version", "", lambda: "; ".join(re.findall(r"^(?:dtrain| +GPU).*", c.run([c.dtrain, "--version"]), re.M)))


def tests(c):
    """The tests with the label gpu. Those built on another machine run one by one: their CTest files have its paths."""
    def passed(path):
        c.run([path])
        return True

    def note(line):
        for name, how in re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) \.+[ *]*(Passed|Skipped|.*)  ", line):
            skipped = "skipped" if c.args.dry_run else "FAIL"
            c.say(name, how, "", {"Passed": "pass", "Skipped": skipped}.get(how, "FAIL"))

    if c.args.prebuilt:
        for path in sorted(glob.glob(os.path.join(c.args.build, "tests", "gpu", "gpu_test_*"))):
            c.row(os.path.basename(path), "", passed, path)
    else:
        c.run(["ctest", "--test-dir", c.args.build, "-L", "gpu", "-LE", "experiment", "--output-on-failure"], each=note)


def gemm(c):
    text = c.run([c.test_program("gemm_rate"), *(["48"] if c.args.dry_run else [])])
    for name, *rates in re.findall(r"^(\w+) ([\d.]+) \(([\d.]+) to ([\d.]+)\)", text, re.M):
        c.row(name, "TFLOP/s", lambda rates=rates: [float(rate) for rate in rates])


def speed(c):
    """Times the compared settings first."""
    def times(batch, precision, way):
        epochs, n = (3, 2 * batch) if c.args.dry_run else (21, 60000 // batch * batch)
        _, records, _ = c.train({"precision": precision, "train.epochs": epochs, "train.batch.per_rank": batch,
                                 "data.train_samples": n, "data.test_samples": batch, **WAYS[way]})
        return [1e6 * batch / r["images_per_s"] for r in records[1:]]

    for batch in (4,) if c.args.dry_run else (128, 4096, 1024):
        for precision in LIMITS:
            for way in WAYS:
                most = 60 if (batch, precision, way) == (128, "bf16", "graph") else None
                us = c.row(row_name(batch, precision, way), "us", times, batch, precision, way, most=most)
                if us and (batch, precision, way) == (4096, "bf16", "graph"):
                    c.row("batch 4096, bf16: share of the peak", "%", lambda us=us: 100 * batch * FLOP_PER_SAMPLE / us / 1e6 / peak(c),
                          least=25)


def peak(c):
    """In TFLOP/s; of a GPU that the list does not have, the measured rate of a product."""
    return next((rate for name, rate in PEAK_TFLOPS.items() if name in c.there["GPU"]), c.found.get(("gemm", "bf16")))


def row_name(batch, precision, way):
    return "batch %s, %s, %s" % (batch, precision, way)


def pytorch(c):
    """Each batch, precision and way is a row, as torch_steps.py prints it."""
    def note(line):
        found = json.loads(line) if line.startswith("{") else {}
        if "us" in found:
            c.row(found["name"], "us", lambda: found["us"])
        elif found:
            c.row(found["name"], "", lambda: found["text"])

    cases = ["4,bf16,eager", "4,bf16,compile", "--device", "cpu", "--n-steps", "2"] if c.args.dry_run else []
    env = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(c.args.build, "inductor"), "PYTHONUNBUFFERED": "1"}
    try:
        c.run([c.args.python, os.path.join(HERE, "gpu", "torch_steps.py"), *cases], env, each=note)
    finally:
        ratios(c)


def ratios(c):
    """PyTorch's time of a step divided by dtrain's, where both were measured."""
    for (part, name), own in list(c.found.items()):
        if part == "speed" and name.endswith(", graph"):
            case = name[: -len("graph")]
            theirs = {row[len(case) :]: us for (of, row), us in c.found.items() if of == "pytorch" and row.startswith(case)}
            goals = {"eager": 8, "best": 1.5} if case == "batch 128, bf16, " else {}
            for way, us in {"eager": theirs.get("eager"), "best": min(theirs.values(), default=None)}.items():
                if us:
                    c.row("PyTorch / dtrain, " + case + way, "times", lambda us=us, own=own: us / own, least=goals.get(way))


def accuracy(c):
    tiny = {"train.epochs": 1, "train.batch.per_rank": 8, "data.train_samples": 16, "data.test_samples": 8}

    def percent(precision):
        return 100 * c.train({"precision": precision, **(tiny if c.args.dry_run else {})})[1][-1]["test_accuracy"]

    for precision in LIMITS:
        c.row("MNIST, 12 epochs, " + precision, "%", percent, precision, least=98.9)


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

    def error(precision):
        """The larger of the loss's, and of the gradients' by the largest of their tensor."""
        own_loss, found = gradients(precision=precision)
        errors = [max(abs(x - y) for x, y in zip(found[k], e)) / max(map(abs, e)) for k, e in expected.items()]
        return max(*errors, abs(own_loss - loss) / loss)

    for precision, limit in LIMITS.items():
        c.row("gradients and loss, " + precision, "", error, precision, most=limit)


def same_bits(c):
    n = 4 if c.args.dry_run else 128

    def weights(precision, way):
        return c.train({"precision": precision, **SAME_ENGINES, "train.epochs": 1, "train.max_steps": 2 if c.args.dry_run else 50,
                        "train.batch.per_rank": n, "data.train_samples": 50 * n, "data.test_samples": n, **WAYS[way]})[2]

    for precision in LIMITS:
        c.row("twice, " + precision, "", lambda: weights(precision, "graph") == weights(precision, "graph"))
        c.row("with and without graph, " + precision, "", lambda: weights(precision, "graph") == weights(precision, "calls"))


def loss_off(c, n_ranks, how, env, before=()):
    """Error of the loss of n ranks on GPUs, relative to the CPU's. how: what the log says of the sums."""
    n = 4 if c.args.dry_run else 64  # few enough steps that Adam has not yet amplified rounding errors
    settings = {"train.epochs": 1, "train.batch.per_rank": n, "train.max_steps": 10, "data.train_samples": 20 * n,
                "data.test_samples": 8, "distributed.check_every": 1}
    log, own, _ = c.train(settings, [*c.ranks(n_ranks), *before], env)
    if not re.search("allreduce of gradients: .*, " + how, log):
        raise Failed("the ranks' sums are not " + how)
    expected = c.train({**settings, "device": "cpu"}, c.ranks(n_ranks))[1][-1]["train_loss"]
    return abs(own[-1]["train_loss"] - expected) / expected


def ranks(c):
    """Two ranks on one GPU, through host memory."""
    one = {"CUDA_VISIBLE_DEVICES": "0", "FAKE_DEVICES": "1"}
    c.row("2 ranks on one GPU, loss", "", loss_off, c, 2, "staged", one, most=RANKS_LIMIT)


def nccl(c):
    """Sums in a recorded graph between ranks with a GPU each. Also on one GPU: NCCL treats ranks with different NCCL_HOSTID as on
    different hosts, connected by the network. One rank alone shows nothing: it has nothing to add, and NCCL does nothing."""
    n_gpus = int(c.there["GPUs"])
    shared = n_gpus < 2
    where = " on one GPU" if shared else ""
    # DTRAIN_SHARE_GPU: train/device.c then uses NCCL for ranks that share a GPU, which it otherwise refuses.
    env = {"CUDA_VISIBLE_DEVICES": "0", "DTRAIN_SHARE_GPU": "1", "DTRAIN_TIMEOUT": "30"} if shared else {}
    own_host = ["sh", "-c", 'NCCL_HOSTID="host-$PMI_RANK" exec "$0" "$@"'] if shared else []

    def sums_in_graph(n):
        command = [*c.ranks(n), c.test_program("nccl_in_graph"), *(["one_gpu"] if shared else [])]
        return re.search(r"works: .*", c.run(command, env)).group(0)

    def sums_on_one_gpu():
        """The result is reported, and nothing is required."""
        try:
            text = c.run([*c.ranks(2), c.test_program("nccl_one_gpu")], {"CUDA_VISIBLE_DEVICES": "0", "DTRAIN_TIMEOUT": "15"})
        except Cut:
            raise
        except Failed as why:
            text = str(why)
        return "; ".join(re.findall(r"(?:works|refused): .*", text)) or "failed: " + gist(text)

    def uneven():
        """The last batches of an epoch have 42, 5 and 5 samples: the same bits with and without a graph."""
        n, batch, epochs = (52, 8, 1) if c.args.dry_run else (0, 128, 2)
        settings = {"train.batch": '{"global": %d}' % batch, "train.epochs": epochs, "data.train_samples": n, "data.test_samples": 8}
        by_graph, by_calls = (c.train({**settings, **SAME_ENGINES, **way}, [*c.ranks(3), *own_host], env)[2] for way in WAYS.values())
        return by_graph == by_calls

    for n in (2, 3) if shared else range(2, n_gpus + 1):
        c.row("%d ranks%s, sums in a graph" % (n, where), "", sums_in_graph, n)
        c.row("%d ranks%s, loss" % (n, where), "", loss_off, c, n, "nccl", env, own_host, most=RANKS_LIMIT)
    if shared:
        c.row("experiment: 2 ranks on one GPU", "", sums_on_one_gpu)
    if shared or n_gpus >= 3:
        c.row("3 ranks%s, uneven batches" % where, "", uneven)
    for way in WAYS:
        c.row("a stopped peer%s, %s" % (where, way), "", stopped_peer, c, way, env, own_host)


def stopped_peer(c, way, env, own_host):
    """Rank 1 stops after the first epoch; the other must end by itself, with the exit code for a stall, and name rank 1."""
    folder = c.new_folder()
    settings = {"train.epochs": 1000000, "data.train_samples": 8 * (2 if c.args.dry_run else 100), "train.batch.per_rank": 4,
                "data.test_samples": 8, "distributed.timeout_s": 5, **WAYS[way]}
    named = ["sh", "-c", '[ "$PMI_RANK" = 1 ] && echo $$ >"$0"; exec "$@"', folder + ".pid", *own_host]

    def stop_it(line):
        if re.match("epoch +1/", line):
            with open(folder + ".pid") as file, contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read()), signal.SIGSTOP)

    try:
        c.run([*c.ranks(2), *named, *c.command(settings, run=folder)], {**env, "DTRAIN_TIMEOUT": "5"}, each=stop_it)
    except Failed as why:
        if "rank 1" in why.output and why.code == STALLED:
            return True
        raise
    raise Failed("it ended well")


def sizes(c, batch):
    batch = 4 if c.args.dry_run else batch
    return {"train.batch.per_rank": batch, "data.train_samples": 3 * batch, "data.test_samples": 4}


def sanitizer(c):
    def clean(tool, command):
        try:
            text = c.run([c.there["compute-sanitizer"], "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9", *command])
        except Failed as why:
            if "Device not supported" in why.output:
                raise Skipped("Device not supported") from why
            raise
        if "ERROR SUMMARY: 0 errors" not in text and "(0 errors, 0 warnings)" not in text:
            raise Failed("it does not say what it found: " + gist(text))
        return True

    for way in WAYS:
        settings = {**FEW, **sizes(c, 128), **WAYS[way], **SAME_ENGINES, "precision": "bf16"}
        c.row("memcheck, three steps, " + way, "", clean, "memcheck", c.command(settings))
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        c.row(tool + ", test_kernels", "", lambda tool=tool: clean(tool, [c.test_program("test_kernels")]))


def profile(c):
    """The shape of the recorded step, `dtrain bench model`, which names cuDNN's engines, and the kernels of a step."""
    for config, most in (("mnist.json", (17, 14)), ("mnist-mlp.json", (9, None))):
        name, path = config.split(".")[0] + ", bf16", os.path.join(c.folder, config + ".dot")
        c.run(c.command({**FEW, **sizes(c, 128), "precision": "bf16"}, config), {"DTRAIN_CUDA_GRAPH": path})
        with open(path) as file:
            shape = nodes_and_chain(file.read())
        for what, n, limit in zip(("nodes, ", "longest chain, "), shape, most):
            c.row(what + name, "nodes", lambda n=n: n, most=limit)
    for precision in LIMITS:
        c.attach("bench model, " + precision, c.run([c.dtrain, "bench", "model",
                                                      *c.configured({**sizes(c, 128), "precision": precision})]))
    for batch in (128, 4096) if c.there["ncu"] else ():
        c.attach("kernels of a step, batch %d, bf16" % batch, kernels(c, batch))


def nodes_and_chain(dot):
    """Number of nodes of a graph, and of those on its longest path."""
    before = {name: [] for name in re.findall(r'^\s*"(\w*node_\d+)"\s*\[', dot, re.M)}
    for first, second in re.findall(r'^\s*"(\w*node_\d+)"\s*->\s*"(\w*node_\d+)"', dot, re.M):
        before[second].append(first)
    length, n_left = {}, -1
    while n_left != len(before) - len(length):
        n_left = len(before) - len(length)
        for name, firsts in before.items():
            if all(first in length for first in firsts):
                length[name] = 1 + max((length[first] for first in firsts), default=0)
    return len(before), max(length.values(), default=0)


def kernels(c, batch):
    """ncu's table by kernel. The first step of its kind goes call by call, in the range "step", which contains nothing else; each
    kernel is replayed with the caches in the state that the other kernels left."""
    path = os.path.join(c.folder, "ncu.txt")
    settings = {"train.epochs": 1, "train.max_steps": 1, **sizes(c, batch), **SAME_ENGINES, "precision": "bf16"}
    try:
        c.run([c.there["ncu"], "--nvtx", "--nvtx-include", "step/", "--clock-control", "none", "--cache-control", "none",
               "--target-processes", "all", "--print-summary", "per-kernel", "--log-file", path, "--metrics",
               "gpu__time_duration.sum,dram__bytes.sum,regex:^sm__.*pipe_tensor.*cycles_active$", *c.command(settings)])
    except Failed as why:
        if re.search("ERR_NVGPUCTRPERM|Failed to initialize the profiler", str(why)):  # the machine does not allow it
            return "skipped: " + str(why)
        raise
    with open(path) as file:
        return file.read()
