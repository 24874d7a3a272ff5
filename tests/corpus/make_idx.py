#!/usr/bin/env python3
"""Writes the seeds of fuzz_idx into the folder idx beside this script."""
import gzip
import pathlib
import struct

folder = pathlib.Path(__file__).parent / "idx"
folder.mkdir(exist_ok=True)


def idx(*dims, extra=b""):
    n = 1
    for d in dims:
        n *= d
    return struct.pack(f">BBBB{len(dims)}I", 0, 0, 8, len(dims), *dims) + bytes(i % 251 for i in range(n)) + extra


images = idx(6, 4, 3)
seeds = {
    "labels": idx(9),
    "images": images,
    "colour": idx(2, 3, 4, 2),
    "images.gz": gzip.compress(images, 9, mtime=0),
    "images-stored.gz": gzip.compress(images, 0, mtime=0),
    "labels-stored.gz": gzip.compress(idx(9), 0, mtime=0),
    "two-members.gz": gzip.compress(images, 9, mtime=0) * 2,
    "cut": images[:30],
    "extra": idx(2, 2, 2, extra=b"more"),
    "impossible": struct.pack(">BBBBIII", 0, 0, 8, 3, 0xFFFFFFFF, 65536, 65536),
    "float": struct.pack(">BBBBIIIf", 0, 0, 0x0D, 3, 1, 1, 1, 1.0),
    "swapped": struct.pack("<IIII", 0x803, 1, 1, 1) + b"x",
    "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
}
for name, content in seeds.items():
    (folder / name).write_bytes(content)
