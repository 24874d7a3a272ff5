"""Weights of another model, train.freeze and a layer's lr: what fits of a file is taken, the rest drawn and named; twelve steps are PyTorch's
in float64 at 1, 2 and 3 ranks, whatever combines the gradients, and a resumed run has the bytes of one that was not interrupted.

usage: DTRAIN=... MPIEXEC=... test_finetune.py MODULE: of fake GPUs
       DTRAIN=... MPIEXEC=... test_finetune.py golden: writes tests/fixtures/finetune.json anew, with PyTorch"""
import os
import random
import re
import struct
import sys

import checkpoint
import samples
from checks import SOURCE, check, checkpoint_of, dtrain, finish, new_folder, read_json, refused, sets, write_json
from document import Document

EXTENT, N_CLASSES, N_STEPS, BATCH, LR = 8, 4, 12, 12, 0.05
GOLDEN = f"{SOURCE}/tests/fixtures/finetune.json"
# Shapes of the model's tensors; the last two are another model's in the file.
SHAPES = {"conv1.weight": (5, 1, 3, 3), "conv1.bias": (5,), "bn1.weight": (5,), "bn1.bias": (5,), "bn1.running_mean": (5,), "bn1.running_var": (5,),
          "conv2.weight": (6, 5, 3, 3), "conv2.bias": (6,), "fc1.weight": (7, 96), "fc1.bias": (7,), "fc2.weight": (4, 7), "fc2.bias": (4,)}
# (frozen, factors of the rate, optimizer). Frozen ones before all that is trained, and between.
CASES = {
    "front": (["conv1", "bn1"], {"fc1": 0.1}, {"type": "sgd", "lr": LR, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.2}),
    "middle": (["conv2", "fc1"], {"conv1": 0.3, "fc2": 2}, {"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip_norm": 0.2}),
    "rates": ([], {"conv1": 0.1, "bn1": 0.2, "fc2": 3}, {"type": "adam", "lr": 0.01}),
    "back": (["fc1", "fc2"], {}, {"type": "sgd", "lr": LR, "nesterov": True, "momentum": 0.9})}


def config(case, plain=False):
    """plain: without the normalization, which not every strategy takes."""
    frozen, rates, optimizer = CASES[case]

    def layer(name, **more):
        return {**more, **({"lr": rates[name]} if name in rates else {})}

    layers = [layer("conv1", type="conv2d", filters=5, kernel=3, padding="same"), layer("bn1", type="batch_norm", sync=True, activation="tanh"),
              layer("conv2", type="conv2d", filters=6, kernel=3, padding="same", activation="tanh"), {"type": "avg_pool2d", "size": 2},
              {"type": "flatten"}, layer("fc1", type="dense", units=7, activation="tanh"), layer("fc2", type="dense", units=N_CLASSES)]
    return {"data": {"format": "idx", "dir": "d", "shuffle": False, "sharding": "global"},
            "model": {"input": [1, EXTENT, EXTENT], "layers": [one for one in layers if not plain or one["type"] != "batch_norm"]},
            "train": {"epochs": 1, "batch": {"global": BATCH}, "optimizer": optimizer, "freeze": [name for name in frozen if not plain or name != "bn1"]},
            "checkpoint": {"every_steps": 1, "keep": 20}, "report": False, "threads": 1}


def pack(values):
    return struct.pack(f"<{len(values)}f", *values)


def write_files():
    draw = random.Random(7)
    n, n_test = N_STEPS * BATCH, 20
    images = [bytes(draw.randrange(256) for _ in range(EXTENT * EXTENT * m)) for m in (n, n_test)]
    labels = [[draw.randrange(N_CLASSES) for _ in range(m)] for m in (n, n_test)]
    for i, split in enumerate(("train", "t10k")):
        samples.write_idx("d", split, (EXTENT, EXTENT), images[i], labels[i])
    tensors = {}
    for name, shape in {**SHAPES, "fc2.weight": (9, 7), "fc2.bias": (9,), "bn1.num_batches_tracked": ()}.items():
        size = 1
        for extent in shape:
            size *= extent
        spread = 0.3 if name.endswith("weight") else 0.1
        values = [draw.uniform(-spread, spread) + (name in ("bn1.running_var", "bn1.weight")) for _ in range(size)]
        tensors[name] = ("I64", list(shape), bytes(8)) if shape == () else ("F32", list(shape), pack(values))
    for prefix in ("", "module.", "_orig_mod.", "_orig_mod.module."):
        samples.write(f"{prefix}w", samples.safetensors({prefix + name: tensor for name, tensor in tensors.items()}))
    return tensors


def weights(path):
    header, data = checkpoint.split(checkpoint.read(path))
    return {name: list(memoryview(data[slice(*t["data_offsets"])]).cast("f")) for name, t in header.items() if name in SHAPES}


def train(case, folder, *arguments, ranks=1, plain=False, code=0, file="w"):
    write_json(f"{case}.json", config(case, plain))
    return dtrain("--config", f"{case}.json", "--weights", file, "--run", folder, *arguments, ranks=ranks, code=code)


def digest(tensors):
    """Of each tensor its sum, the sum of its squares, and an element of it."""
    return {name: [sum(values), sum(v * v for v in values), values[len(values) // 2]] for name, values in tensors.items()}


def near(about, found, golden):
    for name, numbers in golden.items():
        got = digest({name: found[name]})[name]
        worst = max(abs(a - b) for a, b in zip(got, numbers))
        check(worst < 2e-4 * max(1, max(map(abs, numbers))), f"{about}: {name} is {got}, PyTorch has {numbers}")


# ---- PyTorch


def torch_weights(case, start):
    import torch
    import torch.nn.functional as F
    frozen, rates, optimizer = CASES[case]
    net = {"conv1": torch.nn.Conv2d(1, 5, 3, padding=1), "bn1": torch.nn.BatchNorm2d(5), "conv2": torch.nn.Conv2d(5, 6, 3, padding=1),
           "fc1": torch.nn.Linear(96, 7), "fc2": torch.nn.Linear(7, N_CLASSES)}
    for name, module in net.items():
        module.double()
        module.load_state_dict({key: torch.tensor(start[f"{name}.{key}"], dtype=torch.float64).reshape(SHAPES[f"{name}.{key}"])
                                for key in module.state_dict() if key != "num_batches_tracked"}, strict=False)
        for p in module.parameters():
            p.requires_grad = name not in frozen
    groups = [{"params": list(module.parameters()), "lr": optimizer["lr"] * rates.get(name, 1)} for name, module in net.items() if name not in frozen]
    options = {key: value for key, value in optimizer.items() if key in ("momentum", "weight_decay", "nesterov")}
    steps = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer["type"]](groups, **options)
    with open("d/train-images-idx3-ubyte", "rb") as file:
        images = torch.tensor(list(file.read()[16:]), dtype=torch.float64).reshape(-1, 1, EXTENT, EXTENT) / 255
    with open("d/train-labels-idx1-ubyte", "rb") as file:
        labels = torch.tensor(list(file.read()[8:]))
    for step in range(N_STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        x = torch.tanh(net["bn1"](net["conv1"](images[part])))
        x = torch.flatten(F.avg_pool2d(torch.tanh(net["conv2"](x)), 2), 1)
        steps.zero_grad()
        F.cross_entropy(net["fc2"](torch.tanh(net["fc1"](x))), labels[part]).backward()
        if "clip_norm" in optimizer:
            torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], optimizer["clip_norm"])
        steps.step()
    return {f"{name}.{key}": value.flatten().tolist() for name, module in net.items() for key, value in module.state_dict().items()
            if key != "num_batches_tracked"}


def write_golden():
    train("rates", "start", *sets("train.optimizer.lr=1e-30", "train.max_steps=1"))
    start = weights(checkpoint_of("start", 1))
    for name in ("bn1.running_mean", "bn1.running_var"):  # of before the step
        start[name] = list(memoryview(FILE[name][2]).cast("f"))
    golden = {}
    for case, (_, _, optimizer) in CASES.items():
        golden[case] = {name: [round(x, 7) for x in numbers] for name, numbers in digest(torch_weights(case, start)).items()}
        if optimizer["type"] != "sgd":  # no gradient of a bias before a normalization but rounding, of which adam makes whole steps
            del golden[case]["conv1.bias"], golden[case]["bn1.running_mean"]
    write_json(GOLDEN, golden)


# ---- the tests


def test_steps():
    golden = read_json(GOLDEN)
    for case, (frozen, _, _) in CASES.items():
        for ranks in (1, 2, 3):
            folder = f"{case}-{ranks}"
            done = train(case, folder, ranks=ranks)
            check("w: 10 of 12 tensors taken; drawn: 'fc2.weight', 'fc2.bias'\n" in done.stderr, f"{folder}: {done.stderr}")
            found = weights(checkpoint_of(folder, N_STEPS))
            near(folder, found, golden[case])
            for name in found:
                if name.split(".")[0] in frozen and not name.startswith("fc2.") and "running" not in name:
                    check(pack(found[name]) == FILE[name][2], f"{folder}: {name} is frozen and has changed")
    moved = weights(checkpoint_of("front-1", N_STEPS))["bn1.running_mean"]
    check(pack(moved) != FILE["bn1.running_mean"][2], "a frozen normalization's running statistics go on, as with requires_grad=False")


def test_resume():
    for case in CASES:
        for ranks in (1, 2):
            parts = f"parts-{case}-{ranks}"
            train(case, parts, *sets("train.max_steps=5"), ranks=ranks)
            train(case, parts, "--resume", ranks=ranks)
            check(weights(checkpoint_of(parts, N_STEPS)) == weights(checkpoint_of(f"{case}-{ranks}", N_STEPS)), f"{parts}: resumed to other weights")


def test_strategies():
    """Without a normalization, the same numbers from all of them."""
    for case in ("front", "middle", "back"):
        train(case, f"plain-{case}", plain=True)
        expected = digest(weights(checkpoint_of(f"plain-{case}", N_STEPS)))
        for i, settings in enumerate((["distributed.allreduce=ring"], ["distributed.strategy=parameter_server"], ["distributed.strategy=pipeline"],
                                      ["distributed.order=priority"], ["distributed.deterministic=true", "distributed.leaf=4"], ["train.accumulate=2"],
                                      ["distributed.bucket_mb=0", "distributed.allreduce=mpi"], ["distributed.strategy=central"])):
            clips = ["train.optimizer.clip_norm=0"] if "clip_norm" in CASES[case][2] and i in (1, 2, 3, 7) else []
            if clips:
                train(case, f"unclipped-{case}-{i}", *sets(*clips), plain=True)
            folder = f"{case}-by-{i}"
            train(case, folder, *sets(*settings, *clips), ranks=2, plain=True)
            near(folder, weights(checkpoint_of(folder, N_STEPS)), digest(weights(checkpoint_of(f"unclipped-{case}-{i}", N_STEPS))) if clips else expected)


def test_exchange():
    """The gradients of frozen layers that come before all others are not sent."""
    def sent():
        return Document("plan", "--config", "front.json", *sets("distributed.allreduce=ring"), ranks=2).figure("Averaging", "sent a step")

    write_json("front.json", {**config("front"), "train": {**config("front")["train"], "freeze": []}})
    whole = sent()
    write_json("front.json", config("front"))
    check(whole - sent() == 4 * (48 + 3 * 16), f"{sent()} bytes are sent, {whole} where nothing is frozen")


def test_plan():
    """The table of blocks says how each learns."""
    for case, expected in (("front", {"conv1": "; frozen", "bn1": "; frozen", "conv2": "", "fc1": "; learning rate x 0.1", "fc2": ""}),
                           ("middle", {"conv1": "; learning rate x 0.3", "conv2": "; frozen", "fc2": "; learning rate x 2"})):
        write_json("c.json", config(case))
        layers = {row["block"]: row["layers"] for row in Document("plan", "--config", "c.json").rows("Blocks")}
        for block, text in expected.items():
            check("".join(layers[block].partition(";")[1:]) == text, f"{case}: {block}: {layers[block]}")


def test_files():
    plain = train("front", "named")
    for prefix in ("module.", "_orig_mod.", "_orig_mod.module."):
        done = train("front", f"from-{prefix}", file=f"{prefix}w")
        check(f"10 of 12 tensors taken, whose names begin with {prefix}" in done.stderr, f"{prefix}: {done.stderr}")
        check(weights(checkpoint_of(f"from-{prefix}", N_STEPS)) == weights(checkpoint_of("named", N_STEPS)), f"{prefix}: other weights")
        refused(65, "fc2.weight' has shape [9, 7], the model has [4, 7]", "eval", "--config", "front.json", "--weights", f"{prefix}w")
    check("whose names" not in plain.stderr, plain.stderr)
    whole = {f"module.{name}": ("F32", list(SHAPES[name]), pack(values)) for name, values in weights(checkpoint_of("named", N_STEPS)).items()}
    samples.write("whole", samples.safetensors(whole))
    done = dtrain("eval", "--config", "front.json", "--weights", "whole")
    check(done.stdout == dtrain("eval", "named").stdout and "whole: names without 'module.'" in done.stderr, f"{done}")
    samples.write("other", samples.safetensors({"layer.a": ("F32", [3], pack([1, 2, 3])), "conv1.weight": ("F32", [2], pack([1, 2]))}))
    done = train("front", "none", file="other", code=65)
    check("other: tensors missing: 'conv1.bias', " in done.stderr and "unknown: 'layer.a'" in done.stderr, done.stderr)


def test_refusals(module):
    layers = "'conv1', 'bn1', 'conv2', 'fc1', 'fc2'"
    for names, text in ((["bn1", "conv9"], f"no layer 'conv9' has weights (there are {layers})"),
                        (["conv1", "bn1", "conv2", "fc1", "fc2"], f"nothing is left to train (leave out one of {layers})")):
        write_json("c.json", {**config("front"), "train": {**config("front")["train"], "freeze": names}})
        refused(78, f"c.json: train.freeze: {text}", "plan", "--config", "c.json")
    refused(64, "model.layers[0].lr: expected a number > 0", "plan", "--config", "front.json", "--set", "model.layers.0.lr=0")
    refused(64, "model.layers[3].lr: unknown key", "plan", "--config", "front.json", "--set", "model.layers.3.lr=1")
    gpus = {"FAKE_GPUS": "aaaaaaaa", "DTRAIN_CUDA_MODULE": os.path.abspath(module)}
    for case, text in (("front", "train.freeze"), ("rates", "a layer's lr")):
        write_json("c.json", config(case))
        refused(69, f'{text}: not on GPUs (use "device": "cpu")', "train", "--config", "c.json", "--run", "gpu", env=gpus, ranks=1)
    dtrain("eval", "plain-front", env=gpus)


new_folder()
os.mkdir("d")
FILE = write_files()
if sys.argv[1] == "golden":
    write_golden()
    sys.exit()
test_steps()
test_resume()
test_strategies()
test_exchange()
test_plan()
test_files()
test_refusals(sys.argv[1])
finish()
