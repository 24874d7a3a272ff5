#!/usr/bin/env python3
"""Files with one fault each, for test_bad_config.sh and test_bad_files.sh. Standard library only.

make_bad_input.py data DIR              a folder of IDX files for each fault in DATA, and DIR/good
make_bad_input.py checkpoints GOOD DIR  a checkpoint for each fault in CHECKPOINTS, made from a good one
make_bad_input.py image FILE            a good PNG of the size of the data
"""
import gzip
import json
import os
import shutil
import socket
import struct
import sys
import zlib

from checkpoint import join, split

N, SIZE, CLASSES = 32, 8, 4
IMAGES, LABELS, TEST_IMAGES = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"


def idx(dims, data, magic=None):
    head = struct.pack(">I", 0x800 + len(dims)) if magic is None else magic
    return head + b"".join(struct.pack(">I", d) for d in dims) + data


def images(n, size=SIZE):
    return idx([n, size, size], bytes((i * 7 + i // 64 * 50) % 256 for i in range(n * size * size)))


def labels(n):
    return idx([n], bytes(i % CLASSES for i in range(n)))


def good():
    return {IMAGES: images(N), LABELS: labels(N), TEST_IMAGES: images(16), "t10k-labels-idx1-ubyte": labels(16)}


def zipped(data):
    return gzip.compress(data, mtime=0)


def flipped(data, at, bit=0x10):
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1:]


G = good()
Z = zipped(G[IMAGES])
RAW = b"\0" * (N * SIZE * SIZE)
# fault -> (file, what it holds instead; None: it is missing)
DATA = {
    "missing": (IMAGES, None),
    "short6": (IMAGES, G[IMAGES][:6]),
    "swapped": (IMAGES, G[LABELS]),
    "html": (IMAGES, b"<!DOCTYPE html><html><body>404</body></html>"),
    "float": (IMAGES, idx([N, SIZE, SIZE], RAW * 4, b"\0\0\x0d\x03")),
    "huge": (IMAGES, idx([0xFFFFFFFF, 65536, 65536], b"")),
    "short-data": (IMAGES, G[IMAGES][:-100]),
    "uneven": (LABELS, labels(N - 1)),
    "label": (LABELS, flipped(G[LABELS], 8 + 30, 4)),
    "size": (IMAGES, images(N, 10)),
    "test-size": (TEST_IMAGES, images(16, 10)),
    "gz-short": (IMAGES + ".gz", Z[:len(Z) // 2]),
    "gz-garbage": (IMAGES + ".gz", Z + b"garbage"),
    "gz-not": (IMAGES + ".gz", b"this is neither gzip nor IDX"),
    "gz-bomb": (IMAGES + ".gz", zipped(G[IMAGES] + b"\0" * (1 << 25))),
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


def overlap(header, names, _data):
    header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]
    header[names[1]]["shape"] = header[names[0]]["shape"]


def no_number(header, names, data):
    begin, end = header[names[0]]["data_offsets"]
    data[begin:begin + 4] = struct.pack("<f", float("nan"))
    header["__metadata__"][f"crc32.{names[0]}"] = f"{zlib.crc32(data[begin:end]):08x}"
    return data


def huge(header, names, data):
    for name in names:
        begin, end = header[name]["data_offsets"]
        data[begin:end] = struct.pack("<f", 3e38) * ((end - begin) // 4)
        header["__metadata__"][f"crc32.{name}"] = f"{zlib.crc32(data[begin:end]):08x}"
    return data


CHECKPOINTS = {
    "short-data": lambda f: f[:-4],
    "flipped-data": lambda f: flipped(f, len(f) - 3),
    "overlap": lambda f: edited(f, overlap),
    "version": lambda f: edited(f, metadata("version", "3")),
    "steps": lambda f: edited(f, metadata("step_in_epoch", "18446744073709551615")),
    "path": lambda f: edited(f, metadata("config", "../../etc/passwd")),
    "nan": lambda f: edited(f, no_number),
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


def make_image(path):
    """8x8 grey pixels; nothing is wrong with them"""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    pixels = b"".join(b"\0" + b"\xff" * 7 + bytes([16 * y]) for y in range(8))
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    if sys.argv[1] == "data":
        make_data(sys.argv[2])
    elif sys.argv[1] == "image":
        make_image(sys.argv[2])
    else:
        make_checkpoints(sys.argv[2], sys.argv[3])
