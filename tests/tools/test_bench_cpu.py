#!/usr/bin/env python3
"""bench-cpu counts operations, forms ratios within rounds and reads dtrain's records as it says, and all of dtrain's rows run.

usage: DTRAIN=... MPIEXEC=... test_bench_cpu.py. No figure that it measures matters here."""
import os
import re
import sys

from checks import DTRAIN, MPIEXEC, SOURCE, check, dtrain, finish, new_folder, read_json, run, script, write

bench = script("bench-cpu")
import bench_goals as goals  # noqa: E402


def expect(what, got, want):
    check(got == want, f"{what} is {got!r}, expected {want!r}")


def test_flops():
    """By hand: 2 per product, three times, but no gradient of the image."""
    conv1, conv2, dense1, dense2 = 26 * 26 * 32 * 9, 24 * 24 * 64 * 32 * 9, 12 * 12 * 64 * 128, 128 * 10
    cnn = bench.load("mnist.json")["model"]
    expect("mnist.json", goals.flops_per_image(cnn), 6 * (conv1 + conv2 + dense1 + dense2) - 2 * conv1)
    expect("mnist-mlp.json", goals.flops_per_image(bench.load("mnist-mlp.json")["model"]), 4 * 784 * 128 + 6 * 1280)
    layers = [{"type": "conv2d", "filters": 4, "kernel": 5, "stride": 2, "padding": "same"}, {"type": "avg_pool2d", "size": 2},
              {"type": "conv2d", "filters": 2, "kernel": 3, "stride": 2}, {"type": "max_pool2d", "size": 2, "stride": 1}]
    conv1, conv2 = 17 * 16 * 4 * 3 * 25, 3 * 3 * 2 * 4 * 9  # 33x31 becomes 17x16, 8x8, 3x3, 2x2
    model = {"input": [3, 33, 31], "layers": [*layers, {"type": "dense", "units": 5}]}
    expect("a strided model", goals.flops_per_image(model), 4 * conv1 + 6 * (conv2 + 2 * 2 * 2 * 5))
    expect("100 GFLOP/s on mnist.json", round(goals.roofline(100, cnn), 2), round(1e11 / 71565312, 2))


def test_ratios():
    speeds = {"a": [10, 30, 40], "b": [5, 10, 20], "c": [2, 15, 10]}
    expect("b", goals.ratio(speeds, goals.Goal("", "a", ("b",))), [2, 3, 2])
    expect("the best of two, round by round", goals.ratio(speeds, goals.Goal("", "a", ("b", "c"))), [2, 2, 2])
    expect("twice b", goals.ratio(speeds, goals.Goal("", "a", ("b",), times=2)), [1, 1.5, 1])
    wanted = [goals.Goal("g", "a", ("b",), 2), goals.Goal("g", "a", ("b",), 2.5), goals.Goal("g", "a", ("b",)),
              goals.Goal("g", "a", ("b", "lacking"), 1)]
    found = list(goals.ratios(speeds, wanted))
    expect("goals met", [r["met"] for r in found], [True, False, None])
    expect("a ratio", [found[0][key] for key in ("mine", "other", "median", "min", "max")], ["a", "b", 2, 2, 3])


def test_records():
    """100 and 300 images/s over as many images are 150; of the steps only the first record counts."""
    records = [("run", None), ("step", 90), ("step", 95), ("epoch", 100), ("step", 290), ("epoch", 300)]
    expect("speeds", bench.speeds_of([{"type": t, "images_per_s": s} for t, s in records]), (150, 90))


def test_torch_net():
    """PyTorch's network has dtrain's parameters, and its branches: of an image x twice x, x, and 0 for what is negative."""
    try:
        import torch
    except ImportError:
        print("test_bench_cpu: without PyTorch, its networks are not compared")
        return
    import bench_peers as peers
    branches = [{"type": "batch_norm", "name": "a"}, {"type": "batch_norm", "name": "b"}, {"type": "add", "inputs": ["a"], "name": "c"},
                {"type": "batch_norm", "input": "b"}, {"type": "add", "inputs": ["c"], "activation": "relu"}]
    net = peers.torch_net({"input": [1, 1, 2], "layers": branches}).eval()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()  # it then changes nothing
    expect("a sum of branches", [round(y, 3) for y in net(torch.tensor([[[[1.0, -1.0]]]])).flatten().tolist()], [3, 0])
    for name in ("mnist.json", "cifar-resnet20.json"):
        plan = dtrain("plan", "--config", f"{SOURCE}/configs/{name}", "--set", 'data={"format":"synthetic"}').stdout
        model = bench.load(name)["model"]
        net = peers.torch_net(model)
        expect(name + ": outputs", net(torch.zeros(2, *model["input"])).shape, (2, 10))
        n = sum(p.numel() for p in net.parameters())
        expect(name + ": parameters", f"{n:,}", re.search(r"^. total +([\d,]+)", plan, re.M)[1])


def test_rows():
    """Every row of a ratio has a contender; those of dtrain run; what fails is named and costs only its own rows."""
    new_folder()
    write("prototype", "#!/bin/sh\n[ \"$*\" = '-I -e 2' ] && [ -d mnist ] && echo '  total 16.000 ms/step mean -> 8000 images/s'\n")
    os.chmod("prototype", 0o755)
    run(sys.executable, f"{SOURCE}/scripts/bench-cpu", "--quick", "--dtrain", DTRAIN, "--mpirun", MPIEXEC, "--python", "/bin/false",
        "--horovod-python", "/bin/false", "--prototype", os.path.abspath("prototype"), "--prototype-v3", "/bin/true", "--json", "out.json",
        code=1)
    result = read_json("out.json")
    ratios = [goal for goal in goals.all_goals() if goal.group != "ranks" or result["cores"] > 1]
    rows = {row for goal in ratios for row in (goal.mine, *goal.others)}
    absent = {goals.BF16, goals.TORCH_BF16, *(row for _, row, *_ in goals.SETTINGS)} & set(result["unavailable"])  # on other processors
    expect("what this machine lacks", set(result["unavailable"]), absent)
    expect("the prototype's images/s", result["rounds"][goals.PROTOTYPE], [8000])
    peers = {row for row in rows if row.startswith(("PyTorch", "Horovod"))} | {goals.PROTOTYPE_V3}  # it prints no time
    peers -= absent
    expect("the failed rows", set(result["failed"]), peers)
    expect("the rows with a speed or cost", {*result["images_per_s"], *result["costs"]}, rows - peers - absent)
    expect("the costs", set(result["costs"]), {*goals.COSTS["dtrain"], *goals.COSTS["limit"]})
    seconds, megabytes = (result["costs"][row]["max"] for row in goals.COSTS["dtrain"])
    check(0 < seconds < 60 and 5 < megabytes < 1000, f"a rank starts in {seconds} s and takes {megabytes} MB")
    expect("the ratios", [(r["mine"], r["other"]) for r in result["ratios"]],
           [(g.mine, goals.other_text(g)) for g in ratios if peers.isdisjoint((g.mine, *g.others)) and g.mine not in absent])


def test_without_bf16():
    """On a core without its arithmetic nothing starts in bf16, PyTorch neither, and one line says so."""
    new_folder()
    write("old", f'#!/bin/sh\nDTRAIN_ISA=x86-64-v3 exec "{DTRAIN}" "$@"\n')
    write("python", '#!/bin/sh\necho "$@" >>python.log\nexit 1\n')
    for name in ("old", "python"):
        os.chmod(name, 0o755)
    bf16 = {goals.BF16, goals.TORCH_BF16}
    for group, absent in (("cnn", bf16), ("fashion", {goals.TORCH_BF16}), ("mlp", set())):
        done = run(sys.executable, f"{SOURCE}/scripts/bench-cpu", "--quick", "--groups", group, "--dtrain", os.path.abspath("old"), "--python",
                   os.path.abspath("python"), "--json", "out.json", code=1)  # PyTorch's other rows fail
        result = read_json("out.json")
        expect(group + ": what this machine lacks", set(result["unavailable"]), absent)
        expect(group + ": in bf16", bf16 & {*result["rounds"], *result["failed"]}, set())
        expect(group + ": lines about it", done.stderr.count("without bf16"), len(absent) > 0)
        check("AMX" not in done.stderr, f"{group}: dtrain's error: {done.stderr}")
        check("bf16" not in open("python.log").read(), f"{group}: PyTorch runs in bf16")
        check("not on this machine: " in done.stdout or not absent, f"{group}: the figures do not say what is lacking: {done.stdout}")
    ends = [goals.other_text(goal) for goal in goals.all_goals(False) if goal.group == "cnn"]
    check("fastest of 2 PyTorch variants" in ends and goals.TORCH_BF16 not in ends, f"goals without bf16: {ends}")


test_flops()
test_ratios()
test_records()
test_torch_net()
test_rows()
test_without_bf16()
finish()
