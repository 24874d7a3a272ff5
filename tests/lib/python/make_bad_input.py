#!/usr/bin/env python3
"""Files with one fault each, for test_bad_config.sh and test_bad_files.sh. Standard library only.

make_bad_input.py data DIR              a folder of IDX files for each fault in DATA, and DIR/good
make_bad_input.py checkpoints GOOD DIR  a checkpoint for each fault in CHECKPOINTS, made from a good one
"""
import os
import shutil
import socket
import struct
import sys
import zlib

from checkpoint import join, split
from samples import idx

N, SIZE, CLASSES = 32, 8, 4
IMAGES, LABELS, TEST_IMAGES = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"


def images(n, size=SIZE):
    return idx((n, size, size), ((i * 7 + i // 64 * 50) % 256 for i in range(n * size * size)))


def labels(n):
    return idx((n,), (i % CLASSES for i in range(n)))


def good():
    return {IMAGES: images(N), LABELS: labels(N), TEST_IMAGES: images(16), "t10k-labels-idx1-ubyte": labels(16)}


def flipped(data, at, bit=0x10):
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1:]


G = good()
# fault -> (file, what it holds instead; None: it is missing)
DATA = {
    "missing": (IMAGES, None),
    "html": (IMAGES, b"<!DOCTYPE html><html><body>404</body></html>"),
    "label": (LABELS, flipped(G[LABELS], 8 + 30, 4)),
    "test-size": (TEST_IMAGES, images(16, 10)),
    "gz-raw": (IMAGES + ".gz", G[IMAGES]),  # no fault: the name does not count
}


def make_data(folder):
    for fault, (name, content) in [("good", (IMAGES, G[IMAGES])), *DATA.items()]:
        os.makedirs(f"{folder}/{fault}")
        files = good()
        if content is None or name not in files:
            del files[IMAGES]
        if content is not None:
            files[name] = content
        for file, data in files.items():
            with open(f"{folder}/{fault}/{file}", "wb") as out:
                out.write(data)
    for kind in ("fifo", "socket"):
        shutil.copytree(f"{folder}/missing", f"{folder}/{kind}")
    os.mkfifo(f"{folder}/fifo/{IMAGES}")
    here = os.getcwd()
    os.chdir(f"{folder}/socket")  # a socket's path has no more than 107 characters
    socket.socket(socket.AF_UNIX).bind(IMAGES)
    os.chdir(here)


def edited(file, change):
    header, data = split(file)
    names = [n for n in header if n != "__metadata__"]
    data = change(header, names, bytearray(data)) or data
    return join(header, bytes(data))


def metadata(key, value):
    def change(header, _names, _data):
        header["__metadata__"][key] = value
    return change


def huge(header, names, data):
    for name in names:
        begin, end = header[name]["data_offsets"]
        data[begin:end] = struct.pack("<f", 3e38) * ((end - begin) // 4)
        header["__metadata__"][f"crc32.{name}"] = f"{zlib.crc32(data[begin:end]):08x}"
    return data


CHECKPOINTS = {
    "flipped-data": lambda f: flipped(f, len(f) - 3),
    "steps": lambda f: edited(f, metadata("step_in_epoch", "18446744073709551615")),
    "path": lambda f: edited(f, metadata("config", "../../etc/passwd")),
    "huge": lambda f: edited(f, huge),  # whole, but of a training that diverged
    "same": lambda f: edited(f, lambda h, n, d: None),  # no fault: what the others begin with
}


def make_checkpoints(path, folder):
    os.makedirs(folder)
    with open(path, "rb") as file:
        original = file.read()
    for fault, change in CHECKPOINTS.items():
        with open(f"{folder}/{fault}.safetensors", "wb") as out:
            out.write(change(original))


if __name__ == "__main__":
    if sys.argv[1] == "data":
        make_data(sys.argv[2])
    else:
        make_checkpoints(sys.argv[2], sys.argv[3])
