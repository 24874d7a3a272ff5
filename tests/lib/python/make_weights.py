#!/usr/bin/env python3
"""Writes weights as PyTorch users have them: safetensors, by name, without optimizer state, counters and checksums.

make_weights.py CHECKPOINT DIR       a file for each entry of FILES, made from the weights of a checkpoint
make_weights.py --same A B           fails unless both files have the same weights
"""
import math
import os
import struct
import sys

import checkpoint
from checkpoint import split, write
from samples import safetensors


def read(path):
    """name -> (dtype, shape, bytes)"""
    header, data = split(checkpoint.read(path))
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()
            if not name.startswith("optimizer.")}


def renamed(tensors):
    return {name.replace("conv1", "features.0").replace("fc1", "classifier"): tensor for name, tensor in tensors.items()}


def halved(tensors):
    def half(content):
        values = struct.unpack(f"<{len(content) // 4}f", content)
        return struct.pack(f"<{len(values)}e", *values)
    return {name: ("F16", shape, half(content)) for name, (_, shape, content) in tensors.items()}


def changed(tensors, name, shape=None, first=None):
    dtype, old_shape, content = tensors[name]
    content = content if first is None else struct.pack("<f", first) + content[4:]
    return {**tensors, name: (dtype, shape or old_shape, content)}


def without(tensors, name):
    return {n: tensor for n, tensor in tensors.items() if n != name}


FILES = {
    "torch": lambda t: t,
    "renamed": renamed,
    "half": halved,
    "flat": lambda t: changed(t, "conv1.weight", [math.prod(t["conv1.weight"][1])]),
    "missing": lambda t: without(t, "fc1.bias"),
    "counted": lambda t: {**t, "bn.number": ("I64", [], struct.pack("<q", 7))},
    "extra": lambda t: {**t, "fc2.bias": ("F32", [2], b"\0" * 8)},
    "nan": lambda t: changed(t, "fc1.weight", first=math.nan),
}

if __name__ == "__main__":
    if sys.argv[1] == "--same":
        sys.exit(read(sys.argv[2]) != read(sys.argv[3]))
    weights = read(sys.argv[1])
    os.makedirs(sys.argv[2])
    for fault, change in FILES.items():
        write(f"{sys.argv[2]}/{fault}.safetensors", safetensors(change(weights), {"format": "pt"}))
    write(f"{sys.argv[2]}/bare.safetensors", safetensors(weights))
