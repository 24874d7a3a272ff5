"""The parts of gpu-check that need other tools: NCCL between processes, compute-sanitizer, ncu, PyTorch."""
import contextlib
import csv
import json
import os
import re
import signal

from gpu import parts, probe
from gpu.check import HERE, Cut, Failed, Skipped, gist

STALLED = 76  # exit code


def nccl(c):
    """Sums in a recorded graph between ranks with a GPU each. Also on one GPU: NCCL treats ranks with different NCCL_HOSTID as on
    different hosts, connected by the network. One rank alone shows nothing: it has nothing to add, and NCCL does nothing."""
    n_gpus = int(c.probe["GPUs"])
    if c.lacks(["mpiexec"]):
        return c.note({"name": "2 ranks and more", "skipped": "no mpiexec of MPICH"})
    shared = n_gpus < 2
    where = " on one GPU" if shared else ""

    def sums_in_graph(n):
        command = [*c.ranks(n), c.test_program("nccl_in_graph"), *(["one_gpu"] if shared else [])]
        return re.search(r"works: .*", c.run(command, one_gpu(shared))).group(0)

    for n in (2, 3) if shared else range(2, n_gpus + 1):
        c.measure("%d ranks%s, sums in a graph" % (n, where), "", sums_in_graph, n)
        c.measure("%d ranks%s, loss" % (n, where), "of it", loss_of_pairs, c, n, shared)
    if shared:
        c.measure("experiment: 2 ranks on one GPU", "", sums_on_one_gpu, c)
    if shared or n_gpus >= 3:
        c.measure("3 ranks%s, uneven batches" % where, "", uneven, c, shared)
    for way in parts.WAYS:
        c.measure("a stopped peer%s, %s" % (where, way), "", stopped_peer, c, way, shared)


def own_host():
    """Goes before a program: makes each rank a separate host for NCCL."""
    return ["sh", "-c", 'NCCL_HOSTID="host-$PMI_RANK" exec "$0" "$@"']


def one_gpu(shared):
    """DTRAIN_SHARE_GPU: train/device.c then uses NCCL for ranks that share a GPU, which it otherwise refuses."""
    return {"CUDA_VISIBLE_DEVICES": "0", "DTRAIN_SHARE_GPU": "1", "DTRAIN_TIMEOUT": "30"} if shared else {}


def loss_of_pairs(c, n, shared):
    off, log = parts.loss_off(c, parts.ten_steps(c), n, one_gpu(shared), own_host() if shared else ())
    if not re.search(r"allreduce of gradients: .*, nccl", log):
        raise Failed("the ranks did not add by NCCL")
    return off


def uneven(c, shared):
    """The last batches of an epoch have 42, 5 and 5 samples: the same bits with and without a graph."""
    n, steps = (52, {}) if c.args.dry_run else (0, {"train.epochs": 2})
    settings = {"train.batch": '{"global": %d}' % (8 if c.args.dry_run else 128), "train.epochs": 1, "data.train_samples": n,
                "data.test_samples": 8, **steps}
    launcher = [*c.ranks(3), *(own_host() if shared else [])]
    same = {**settings, **SAME_ENGINES}
    by_graph, by_calls = (c.train({**same, **way}, launcher, one_gpu(shared))[2] for way in parts.WAYS.values())
    return by_graph == by_calls


def stopped_peer(c, way, shared):
    """Rank 1 stops after the first epoch; the other must end by itself, with the exit code for a stall, and name rank 1."""
    folder = c.new_folder()
    steps = 2 if c.args.dry_run else 100
    settings = {"train.epochs": 1000000, "data.train_samples": 2 * 4 * steps, "train.batch.per_rank": 4, "data.test_samples": 8,
                "distributed.timeout_s": 5, **parts.WAYS[way]}
    pid_file = folder + ".pid"
    named = ["sh", "-c", '[ "$PMI_RANK" = 1 ] && echo $$ >"$0"; exec "$@"', pid_file, *(own_host() if shared else [])]

    def stop_it(line):
        if re.match("epoch +1/", line):
            with open(pid_file) as file, contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read()), signal.SIGSTOP)

    try:
        c.run([*c.ranks(2), *named, *c.command(settings, run=folder)], {**one_gpu(shared), "DTRAIN_TIMEOUT": "5"}, each=stop_it)
    except Cut:
        raise
    except Failed as why:
        if "rank 1" in why.output and why.code == STALLED:
            return True
        raise
    raise Failed("it ended well")


def sums_on_one_gpu(c):
    """The result is reported, and nothing is required."""
    try:
        text = c.run([*c.ranks(2), c.test_program("nccl_one_gpu")], {"CUDA_VISIBLE_DEVICES": "0", "DTRAIN_TIMEOUT": "15"})
    except Cut:
        raise
    except Failed as why:
        text = str(why)
    said = re.search(r"(works|refused): .*", text)
    return said.group(0) if said else "failed: " + gist(text)


FEW = {"train.epochs": 1, "train.max_steps": 3}
SAME_ENGINES = {"cuda.deterministic": "true"}  # timing engines is meaningless under such a tool


def sizes(c, batch):
    batch = 4 if c.args.dry_run else batch
    return {"train.batch.per_rank": batch, "data.train_samples": 3 * batch, "data.test_samples": 4}


def sanitizer(c):
    def clean(tool, command):
        path = probe.path_of(c.probe["compute-sanitizer"])
        try:
            text = c.run([path, "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9", *command])
        except Cut:
            raise
        except Failed as why:
            if "Device not supported" in why.output:
                raise Skipped("compute-sanitizer: Device not supported") from why
            raise
        if "Device not supported" in text:
            raise Skipped("compute-sanitizer: Device not supported")
        if "ERROR SUMMARY: 0 errors" not in text and "(0 errors, 0 warnings)" not in text:
            raise Failed("it did not say what it found: " + gist(text))
        return True

    for way in parts.WAYS:
        settings = {**FEW, **sizes(c, 128), **parts.WAYS[way], **SAME_ENGINES, "precision": "bf16"}
        c.measure("memcheck, three steps, " + way, "", clean, "memcheck", c.command(settings))
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        c.measure(tool + ", test_kernels", "", lambda tool=tool: clean(tool, [c.test_program("test_kernels")]))


def profile(c):
    """Nodes and chain of the recorded step; then what each kernel does in a step."""
    for config, precision in (("mnist.json", "bf16"), ("mnist.json", "f32"), ("mnist-mlp.json", "bf16")):
        name = "%s, %s" % (config.split(".")[0], precision)
        shape = {}

        def nodes(config=config, precision=precision, shape=shape):
            shape["nodes"], shape["chain"] = graph_shape(c, {**FEW, **sizes(c, 128), "precision": precision}, config)
            return shape["nodes"]

        c.measure("nodes, " + name, "nodes", nodes)
        if shape:
            c.measure("longest chain, " + name, "nodes", lambda shape=shape: shape["chain"])
    for precision in reversed(parts.PRECISIONS):
        c.measure("engines, " + precision, "", engines, c, precision)
    if c.lacks(["ncu"]):
        return c.note({"name": "kernels", "skipped": "no ncu"})
    for batch in (128, 4096):
        name = "batch %d, bf16" % batch
        if c.record.has(c.part, name + ": all kernels"):
            continue
        try:
            kernels = profiled(c, batch)
        except Cut:
            raise
        except (Failed, Skipped) as why:
            how = "skipped" if isinstance(why, Skipped) or re.search(NOT_ALLOWED, str(why)) else "failed"
            c.note({"name": name + ": all kernels", how: str(why)})
            continue
        for kernel, about in kernels.items():
            c.measure("%s: %s" % (name, kernel), "us a step", lambda about=about: about)


def graph_shape(c, settings, config):
    path = os.path.join(c.folder, "graph.dot")
    c.run(c.command(settings, config), {"DTRAIN_CUDA_GRAPH": path})
    if not os.path.exists(path):
        raise Failed("no graph was recorded")
    with open(path) as file:
        return nodes_and_chain(file.read())


def nodes_and_chain(dot):
    """Number of nodes of a graph, and of those on its longest path."""
    before = {name: [] for name in re.findall(r'^\s*"(\w*node_\d+)"\s*\[', dot, re.M)}
    for first, second in re.findall(r'^\s*"(\w*node_\d+)"\s*->\s*"(\w*node_\d+)"', dot, re.M):
        before.setdefault(first, [])
        before.setdefault(second, []).append(first)
    length = {}
    while len(length) < len(before):
        known = len(length)
        for name, firsts in before.items():
            if name not in length and all(first in length for first in firsts):
                length[name] = 1 + max((length[first] for first in firsts), default=0)
        if len(length) == known:
            raise Failed("the graph has a circle")
    return len(before), max(length.values(), default=0)


def engines(c, precision):
    """cuDNN's engines for the convolutions, and how they were chosen, from the lines of `bench blocks`."""
    text = c.run([c.dtrain, "bench", "blocks", *c.configured({**sizes(c, 128), "precision": precision})])
    found = re.findall(r"^engine (.*)", text, re.M)
    if not found:
        raise Failed("bench blocks names no engine: " + gist(text))
    return "; ".join(found)


TIME, DRAM = "gpu__time_duration.sum", "dram__bytes.sum"
TENSOR = ("sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor", "sm__pipe_tensor_op_hmma_cycles_active",
          "sm__inst_executed_pipe_tensor_op_hmma")  # the first that the GPU has
SHARE = ".avg.pct_of_peak_sustained_active"
NOT_ALLOWED = "ERR_NVGPUCTRPERM|Failed to initialize the profiler"  # by the machine, whose fault it is then


ONE_STEP = {"train.epochs": 1, "train.max_steps": 1}


def profiled(c, batch):
    """The first step of its kind goes call by call, in the range "step", which contains nothing else. ncu replays each kernel with
    the caches in the state that the other kernels left."""
    ncu, path = probe.path_of(c.probe["ncu"]), os.path.join(c.folder, "ncu.csv")
    known = set(re.findall(r"^\s*(\w+__\w+)", c.run([ncu, "--query-metrics"]), re.M))
    tensor = [name + SHARE for name in TENSOR if name in known][:1]
    settings = {**ONE_STEP, **sizes(c, batch), **SAME_ENGINES, "precision": "bf16"}
    c.run([ncu, "--nvtx", "--nvtx-include", "step/", "--clock-control", "none", "--cache-control", "none", "--target-processes", "all",
           "--csv", "--page", "raw", "--print-units", "base", "--log-file", path, "--metrics", ",".join([TIME, DRAM, *tensor]),
           *c.command(settings)])
    with open(path) as file:
        return by_kernel(file.read(), *tensor)


def number(text):
    return float(text.replace(",", "")) if re.fullmatch(r"[\d.,eE+-]+", text or "") else None


def by_kernel(text, tensor=None):
    """{kernel: ncu's figures of it in the step}, the longest first, and "all kernels"."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    launches = [] if start is None else [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # the units' row has none
    if not launches:
        raise Skipped("ncu profiled no kernel: " + gist(text))
    found = {}

    def add(name, row):
        about = found.setdefault(name, {"value": 0, "dram_mb": 0, "launches": 0, "tensor_percent": 0})
        us = (number(row[TIME]) or 0) / 1e3
        about["value"] += us
        about["dram_mb"] += (number(row[DRAM]) or 0) / 1e6
        about["launches"] += 1
        about["tensor_percent"] += (number(row.get(tensor)) or 0) * us  # of its time, until it is divided below

    for row in launches:
        add("all kernels", row)
        add(re.sub(r"\(.*|^void ", "", row["Kernel Name"])[:90], row)
    for about in found.values():
        about["tensor_percent"] = about["tensor_percent"] / about["value"] if tensor and about["value"] else None
    total = found.pop("all kernels")
    return {**dict(sorted(found.items(), key=lambda item: -item[1]["value"])), "all kernels": total}


def pytorch(c):
    """Each batch, precision and way is a row, as torch_steps.py prints it; it runs only the missing ones."""
    from gpu import torch_steps
    everything = ["4,bf16,eager", "4,bf16,compile"] if c.args.dry_run else [",".join(map(str, each)) for each in torch_steps.ORDER]
    missing = [each for each in everything if not c.record.has(c.part, row_name(*each.split(",")))]
    options = ["--device", "cpu", "--n-steps", "2"] if c.args.dry_run else []

    def note(line):
        found = json.loads(line) if line.startswith("{") else {}
        if "torch" in found:
            c.measure("versions", "", lambda: ", ".join("%s %s" % pair for pair in found.items()))
        elif "batch" in found:
            name = row_name(found["batch"], found["precision"], found["way"])
            if "error" in found:
                c.note({"name": name, "skipped": "PyTorch: " + found["error"]})
            else:
                c.measure(name, "us", lambda: {"value": found["us"], "min": found["min"], "max": found["max"], "n": found["n"]})

    try:
        c.run([c.args.python, os.path.join(HERE, "gpu", "torch_steps.py"), *options, *missing],
              {"TORCHINDUCTOR_CACHE_DIR": os.path.join(c.args.build, "inductor"), "PYTHONUNBUFFERED": "1"}, each=note)
    except Cut:
        raise
    except Failed as why:
        raise Skipped("PyTorch sees no GPU") if why.code == 3 else why from why


def row_name(batch, precision, way):
    return "batch %s, %s, %s" % (batch, precision, way)
