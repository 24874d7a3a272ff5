"""The same images in every format train to the same weights, to the bit, and files that are wrong are named.

usage: test_formats.py DTRAIN MPIEXEC"""
import gzip
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import pypi

pypi.need("numpy")
import numpy

DTRAIN, MPIEXEC = map(os.path.abspath, sys.argv[1:])
SHAPE = (3, 32, 32)
N_TRAIN, N_TEST = 115, 21
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED:", text)


# ---- writers

def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def idx(array):
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(numpy.uint8).tobytes()


def records(images, labels, coarse=False):
    return b"".join((b"\x07" if coarse else b"") + bytes([label]) + image.tobytes() for image, label in zip(images, labels))


def write_idx(folder, sets):
    for split, name in (("train", "train"), ("test", "t10k")):
        images, labels = sets[split]
        write(f"{folder}/{name}-images-idx3-ubyte", idx(images))
        write(f"{folder}/{name}-labels-idx1-ubyte", idx(labels))


def write_cifar10(folder, sets, end="", pack=bytes):
    images, labels = sets["train"]
    cuts = [0, 20, 50, 51, 90, N_TRAIN]
    for i in range(5):
        part = slice(cuts[i], cuts[i + 1])
        write(f"{folder}/data_batch_{i + 1}.bin{end}", pack(records(images[part], labels[part])))
    write(f"{folder}/test_batch.bin{end}", pack(records(*sets["test"])))


def write_cifar100(folder, sets):
    for split in sets:
        write(f"{folder}/{split}.bin", records(*sets[split], coarse=True))


# ---- the program

def config(data_format, folder, shape=SHAPE, **data):
    return {"data": {"format": data_format, "dir": folder, **data},
            "model": {"input": list(shape), "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"},
                                                       {"type": "max_pool2d", "size": 2}, {"type": "flatten"}, {"type": "dense", "units": 10}]},
            "train": {"epochs": 1, "batch": {"global": 24}}, "report": False}


def run(name, settings, *arguments, ranks=0):
    with open(f"{name}.json", "w") as file:
        json.dump(settings, file)
    launch = [MPIEXEC, "-n", str(ranks)] if ranks else []
    return subprocess.run([*launch, DTRAIN, *arguments, "--config", f"{name}.json"], capture_output=True, text=True, timeout=200, check=False)


def train(name, data_format, folder, ranks=1, **data):
    """What a run says of its weights, and its result."""
    done = run(name, config(data_format, folder, **data), "train", "--run", f"runs/{name}-{ranks}", ranks=ranks)
    hashed = re.search(r"hash of the weights (\w+)", done.stderr)
    check(done.returncode == 0 and hashed is not None, f"{name}: {done.returncode} {done.stderr[-600:]}")
    return hashed and (hashed[1], done.stdout.splitlines()[-1])


def refuse(name, data_format, folder, text, code=65, shape=SHAPE, **data):
    done = run(name, config(data_format, folder, shape, **data), "plan", "--data", folder)
    check(done.returncode == code and text in done.stderr and done.stderr.startswith("dtrain: "),
          f"{name}: {done.returncode} {done.stderr!r}, expected {code} {text!r}")


# ---- the tests

def make_sets(shape=SHAPE):
    random = numpy.random.default_rng(4)
    return {split: (random.integers(0, 256, (n, *shape), dtype=numpy.uint8), random.integers(0, 10, n))
            for split, n in (("train", N_TRAIN), ("test", N_TEST))}


def test_same_weights(sets):
    write_idx("idx", sets)
    write_cifar10("cifar10", sets)
    write_cifar10("cifar10-gz", sets, ".gz", gzip.compress)
    write_cifar100("cifar100", sets)
    for limit, ranks in ((0, 1), (47, 3)):
        expected = train(f"idx-{limit}", "idx", "idx", ranks, train_samples=limit)
        for data_format, folder in [("cifar", "cifar10"), ("cifar", "cifar10-gz"), ("cifar", "cifar100")]:
            found = train(f"{folder}-{limit}", data_format, folder, ranks, train_samples=limit)
            check(found == expected, f"{folder}, {ranks} ranks, {limit} samples: {found}, by IDX {expected}")


def test_cifar_faults(sets):
    images, labels = sets["train"]
    refuse("absent", "cifar", "nowhere", "nowhere: no such folder (name the folder with CIFAR's binary files", 66)
    write("empty/data_batch_1", b"pickle")
    refuse("python", "cifar", "empty", "neither data_batch_1.bin nor train.bin is there, raw or .gz (the version for Python is: fetch", 66)
    write_cifar10("missing", sets)
    os.remove("missing/data_batch_3.bin")
    refuse("missing", "cifar", "missing", "missing: data_batch_3.bin is missing, raw or .gz, beside data_batch_1.bin", 66)
    write_cifar10("both", sets)
    write_cifar100("both", sets)
    refuse("both", "cifar", "both", "both: holds the files of CIFAR-10 and those of CIFAR-100 (give each")
    for name, content, text in [
            ("cut", records(images[:9], labels)[:-1], "data_batch_4.bin: 27656 bytes are no whole number of records of 3073"),
            ("none", b"", "data_batch_4.bin: empty file"),
            ("cut-gz", gzip.compress(records(images[:9], labels))[:-30], "data_batch_4.bin: "),
            ("bomb", gzip.compress(b"")[:-4] + struct.pack("<I", 3073 * 40000), "40000 records are impossible for a 20-byte file"),
            ("longer", gzip.compress(records(images[:9], labels))[:-4] + struct.pack("<I", 3073 * 8), "data_batch_4.bin: "),
            ("label", records(images[:3], [1, 11, 2]), "data_batch_4.bin: label 11 at index 52, model has 10 classes (0..9)"),
            ("html", b"<html>" * 3073, "data_batch_4.bin: label 60 at index 51"),
            ("packed-bad", gzip.compress(records(images[:9], labels))[:400] + b"\0" * 30, "data_batch_4.bin: ")]:
        write_cifar10(name, sets)
        write(f"{name}/data_batch_4.bin", content)
        refuse(f"cifar-{name}", "cifar", name, text)
    refuse("shape", "cifar", "cifar10", "data_batch_1.bin: images are 3x32x32, model.input is 1x28x28 (set model.input to [3, 32, 32])", shape=(1, 28, 28))


def main():
    sets = make_sets()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.makedirs("empty")
        test_same_weights(sets)
        test_cifar_faults(sets)
        os.chdir("/")
    print("formats agree, and wrong files are named" if not failures else f"{len(failures)} failures")
    sys.exit(bool(failures))


main()
