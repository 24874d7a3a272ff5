#!/usr/bin/env python3
"""Writes the seeds of fuzz_checkpoint into the folder checkpoint beside this script: conv 3x3 and dense 2 over 4x4 pixels."""
import json
import pathlib
import struct
import zlib

folder = pathlib.Path(__file__).parent / "checkpoint"
folder.mkdir(exist_ok=True)

SHAPES = {"conv1.weight": [1, 1, 3, 3], "conv1.bias": [1], "fc1.weight": [2, 4], "fc1.bias": [2]}
COUNTERS = ["step", "epoch", "step_in_epoch", "optimizer_steps", "seed", "world_size", "global_batch", "n_train", "data_crc"]
SUMS = ["loss_sum", "n_correct", "n_samples"]


def checkpoint(n_states=2, shapes=SHAPES, first=0.125, change=None):
    """`change` edits the header before its CRC is worked out."""
    prefixes = [""] + [f"optimizer.{i}." for i in range(n_states)]
    metadata = {"format": "dtrain", "version": "1", "header_crc": "00000000"}
    metadata |= {name: str(i) for i, name in enumerate(COUNTERS)}
    metadata |= {name: float(i).hex() for i, name in enumerate(SUMS)}
    entries, data = {}, b""
    for prefix in prefixes:
        for name, shape in shapes.items():
            n = 1
            for extent in shape:
                n *= extent
            content = struct.pack(f"<{n}f", first, *(i / 16 for i in range(1, n)))
            entries[prefix + name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            metadata["crc32." + prefix + name] = f"{zlib.crc32(content):08x}"
            data += content
    metadata["config"] = '{"note": "a \\"quoted\\" text"}'
    header = {"__metadata__": metadata, **entries}
    if change:
        change(header)
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-(len(text) + 8) % 64)
    start = struct.pack("<Q", len(text)) + text.encode()
    crc = f"{zlib.crc32(start):08x}".encode()
    return start.replace(b'"header_crc":"00000000"', b'"header_crc":"' + crc + b'"', 1) + data


whole = checkpoint()
seeds = {
    "adam": whole,
    "momentum": checkpoint(1),
    "weights": checkpoint(0),
    "truncated": whole[:-5],
    "extra": whole + b"more",
    "flipped": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
    "another-shape": checkpoint(0, SHAPES | {"fc1.weight": [4, 2]}),
    "larger-bias": checkpoint(0, SHAPES | {"conv1.bias": [40]}),
    "another-layer": checkpoint(0, SHAPES | {"fc2.bias": [3]}),
    "nan": checkpoint(0, first=float("nan")),
    "no-config": checkpoint(0, change=lambda header: header["__metadata__"].pop("config")),
    "class-names": checkpoint(0, change=lambda header: header["__metadata__"].update(class_names="cat/dog", data_hash=str(2**64 - 2))),
    "infinite-sum": checkpoint(0, change=lambda header: header["__metadata__"].update(loss_sum="inf")),
    "version": checkpoint(0, change=lambda header: header["__metadata__"].update(version="2")),
    "huge-shape": checkpoint(0, change=lambda header: header["fc1.weight"].update(shape=[2**53, 2**53])),
    "overlap": checkpoint(0, change=lambda header: header["fc1.bias"].update(data_offsets=[0, 8])),
    "half": checkpoint(0, change=lambda header: header["fc1.bias"].update(dtype="F16")),
    "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
}
for name, content in seeds.items():
    (folder / name).write_bytes(content)
