"""The examples of docs/nets.md are the networks that a reader builds in PyTorch: their losses in training and in evaluation are those that
scripts/make-fixtures.py computed in float64 (tests/fixtures/nets.txt), so the page and the program agree on order, padding and names.

usage: DTRAIN=... MPIEXEC=... test_nets_examples.py"""
import json
import os
import re
import struct
import zlib

import checkpoint
import samples
from checks import SOURCE, check, checkpoint_of, dtrain, finish, new_folder, read, records, summary, write_json

N_TRAIN, N_TEST, IMAGE = 16, 8, (3, 32, 32)
END = '{"type": "global_avg_pool"}, {"type": "flatten"}, {"type": "dense", "units": 10}'
# What stands before a piece of a network; the first example is whole.
BEFORE = {"block": None, "shape": '{"type": "conv2d", "filters": 16, "kernel": 3, "name": "short"}, ', "concat": ""}


def number(stream, i):
    """As in scripts/make-fixtures.py."""
    h = (i * 2654435761 + stream * 40503 + 12345) % 2**32
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return ((h >> 16) % 31 - 15) / 16


def tensor(name, shape):
    n = 1
    for extent in shape:
        n *= extent
    if "running_" in name:
        values = [float(name.endswith("var"))] * n
    else:
        stream, shift = zlib.crc32(name.encode()) % 1000, float(len(shape) == 1 and name.endswith("weight"))
        values = [number(stream, i) * 0.5 + shift for i in range(n)]
    return "F32", shape, struct.pack(f"<{n}f", *values)


def layers(name, text):
    if BEFORE[name] is None:
        return json.loads(text)["model"]["layers"]
    return json.loads(f"[{BEFORE[name]}{text}, {END}]")


def losses(name, text):
    """Of one step that changes nothing, and of the test samples behind it."""
    write_json(f"{name}.json", {
        "data": {"format": "idx", "dir": "."}, "model": {"input": IMAGE, "layers": layers(name, text)}, "device": "ref", "report": False,
        "train": {"epochs": 1, "batch": {"global": N_TRAIN}, "optimizer": {"type": "sgd", "lr": 1e-30}}, "threads": 1})
    dtrain("--config", f"{name}.json", "--run", f"{name}-names")
    header, _ = checkpoint.split(checkpoint.read(checkpoint_of(f"{name}-names", 1)))
    shapes = {key: entry["shape"] for key, entry in header.items() if key != "__metadata__" and not key.startswith("optimizer.")}
    checkpoint.write("weights", samples.safetensors({key: tensor(key, shape) for key, shape in shapes.items()}))
    dtrain("--config", f"{name}.json", "--run", name, "--weights", "weights")
    return records(name, "step")[0]["loss"], summary(name)["test_loss"]


new_folder()
pixels = [int((number(200, i) * 16 + 15) * 8) for i in range((N_TRAIN + N_TEST) * 3 * 32 * 32)]
marks = [3 * i % 10 for i in range(N_TRAIN + N_TEST)]
at = N_TRAIN * 3 * 32 * 32
samples.write_idx(".", "train", IMAGE, pixels[:at], marks[:N_TRAIN])
samples.write_idx(".", "t10k", IMAGE, pixels[at:], marks[N_TRAIN:])
page = re.findall(r"```json\n(.*?)```", read(os.path.join(SOURCE, "docs/nets.md")), re.S)
golden = dict(line.split(": ") for line in read(os.path.join(SOURCE, "tests/fixtures/nets.txt")).splitlines() if line[0] != "#")
check(len(page) == len(BEFORE) == len(golden), f"{len(page)} examples, {len(BEFORE)} here, {len(golden)} in PyTorch")
for (net, expected), example in zip(golden.items(), page):
    for ours, theirs in zip(losses(net, example), map(float, expected.split())):
        check(abs(ours - theirs) <= 1e-5 * theirs, f"{net}: loss {ours}, PyTorch has {theirs}")
finish()
