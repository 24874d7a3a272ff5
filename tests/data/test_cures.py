"""Arrays that are no unsigned bytes or no whole numbers: the line of NumPy that the error proposes is followed, and gives the same images and
labels, which are then accepted. usage: DTRAIN=... MPIEXEC=... test_cures.py"""
import io
import re
import struct

import pypi  # before the packages
from checks import check, dtrain, finish, need, new_folder, write, write_json

need("numpy")
import numpy

H, W, N = 5, 4, {"train": 40, "test": 18}
IDX_TYPES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
ANIMALS = numpy.array(["ant", "bee", "cow", "dog", "a long name", "eel", "fox", "gnu", "hen", "ibis"])
names = {}


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def idx(array):
    head = struct.pack(f">4B{array.ndim}I", 0, 0, IDX_TYPES[array.dtype.name], array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


WRITERS = {"npy": (npy, lambda split, part: f"{split}-{part}.npy"),
           "idx": (idx, lambda split, part: f"{'t10k' if split == 'test' else split}-{part}-idx{3 if part == 'images' else 1}-ubyte")}


def make_sets(shape, low=0, high=256):
    """The test set lacks some classes, so that what counts them anew gives other numbers."""
    random = numpy.random.default_rng(6)
    return {split: {"images": random.integers(low, high, (n, *shape), dtype=numpy.uint8), "labels": numpy.arange(n) * (3 if split == "test" else 7) % 9 + (n == 18)}
            for split, n in N.items()}


def put(kind, sets):
    save, name = WRITERS[kind]
    for split, parts in sets.items():
        for part, array in parts.items():
            write(f"d/{name(split, part)}", save(array.astype(numpy.uint8) if kind == "idx" and array.dtype == numpy.int64 else array))


def proposal(text, condition):
    """The expression of "(save A if they are X, B if they are Y)" for this condition."""
    found = re.search(r"save (.*)\)$", text)
    options = re.findall(r"(.+?) if they are ([^,]+)(?:, |$)", found[1] if found else "")
    return dict((state, line) for line, state in options).get(condition) if options else found and found[1]


def follow(kind, sets, part, spoil, condition, about):
    """Spoils a part of both splits; does what the errors say, one after another, until the program accepts it; what is saved is as it was."""
    save, name = WRITERS[kind]
    put(kind, sets)
    spoilt = {split: spoil(parts[part]) for split, parts in sets.items()}
    for split, array in spoilt.items():
        write(f"d/{name(split, part)}", save(array))
    for split in N:
        done = dtrain("plan", "--config", f"{kind}.json", code=65)
        line = proposal(done.stderr.strip(), condition)
        check(line and name(split, part) in done.stderr, f"{about}, {split}: no line for {condition!r} in {done.stderr}")
        if line is None:
            return
        given = {"numpy": numpy, part: spoilt[split], f"train_{part}": spoilt["train"], "HEIGHT": H, "WIDTH": W}
        array = eval(line, given)  # the line of the error
        check(numpy.array_equal(array.reshape(sets[split][part].shape), sets[split][part]), f"{about}, {split}: {line} gives {array[:1]}, not {sets[split][part][:1]}")
        write(f"d/{name(split, part)}", save(array))
    dtrain("plan", "--config", f"{kind}.json")


def scaled(dtype):
    return lambda images: (images.astype(numpy.float64) / 255).astype(dtype)


def objects(array):
    out = numpy.empty(len(array), object)
    out[:] = list(array)
    return out


def configure(shape):
    for kind in WRITERS:
        write_json(f"{kind}.json", {"data": {"format": kind, "dir": "d"}, "train": {"batch": {"global": 8}},
                                    "model": {"input": shape, "layers": [{"type": "flatten"}, {"type": "dense", "units": 10}]}})


def test_images():
    bytes_, small = make_sets((H, W)), make_sets((H, W), high=128)
    for sets, spoil, condition in ((bytes_, objects, None), (bytes_, lambda a: a.astype("f2"), None), (bytes_, lambda a: a.astype("c8"), None)):
        follow("npy", sets, "images", spoil, condition, f"npy {spoil(sets['test']['images']).dtype}")
    for sets, dtype, condition in ((bytes_, "float32", "0 to 1"), (bytes_, "float64", "0 to 1"), (small, "int8", "0 to 255"), (bytes_, "int16", "0 to 255"),
                                   (bytes_, "int32", "0 to 255")):
        follow("idx", sets, "images", scaled(dtype) if condition == "0 to 1" else lambda a, dtype=dtype: a.astype(dtype), condition, f"idx {dtype}")
    follow("idx", bytes_, "images", lambda a: a.reshape(len(a), -1), None, "idx, rows of pixels")


def test_labels():
    sets = make_sets((H, W))
    for spoil in (lambda a: a.astype("f2"), lambda a: a.astype("c8")[:, None]):
        follow("npy", sets, "labels", spoil, None, f"npy {spoil(sets['test']['labels']).dtype}")
    texts = numpy.sort(ANIMALS)
    named = {split: {**parts, "labels": numpy.searchsorted(numpy.unique(sets["train"]["labels"]), numpy.minimum(parts["labels"], 8))} for split, parts in sets.items()}
    for spoil in (lambda a: texts[a], lambda a: texts[a].astype("S"), lambda a: objects(texts[a]), lambda a: texts.astype("U40")[a]):
        follow("npy", named, "labels", spoil, None, f"npy {spoil(named['test']['labels']).dtype}")
    for spoil, condition in ((lambda a: a.astype("int32"), "whole numbers up to 255"), (lambda a: a.astype("float32"), "whole numbers up to 255"),
                             (lambda a: numpy.eye(10, dtype="int32")[a], "one-hot"), (lambda a: numpy.eye(10, dtype="uint8")[a], "one-hot"),
                             (lambda a: a[:, None].astype("uint8"), "QMNIST's or one column"), (lambda a: a[:, None].astype("int16"), "QMNIST's or one column"),
                             (lambda a: numpy.stack([a] + 7 * [a * 100], 1).astype("int32"), "QMNIST's or one column")):
        follow("idx", sets, "labels", spoil, condition, f"idx {spoil(sets['test']['labels']).dtype} {condition}")


def test_labels_from_one():
    """Only whoever has no label 0 is told to subtract 1."""
    sets = make_sets((H, W))
    for kind in WRITERS:
        for split in N:
            put(kind, sets)
            labels = sets[split]["labels"]
            save, name = WRITERS[kind]
            for moved, from_one in ((labels + 10 - labels.max(), True), (labels + 30, False)):
                write(f"d/{name(split, 'labels')}", save(moved.astype(numpy.uint8)))
                done = dtrain("plan", "--config", f"{kind}.json", code=65)
                check(("(if no label is 0, save labels - 1;" in done.stderr) == from_one, f"{kind}, {split}: {done.stderr}")


def test_channels_last():
    """IDX has channels first: the last dimension, if it is small, is not proposed as the width."""
    configure([3, H, 2 * W])
    sets = make_sets((3, H, 2 * W))
    put("idx", sets)
    last = numpy.ascontiguousarray(sets["train"]["images"].transpose(0, 2, 3, 1))
    write(f"d/{WRITERS['idx'][1]('train', 'images')}", idx(last))
    done = dtrain("plan", "--config", "idx.json", code=65)
    line = proposal(done.stderr.strip(), None)
    check(line and numpy.array_equal(eval(line, {"images": last}), sets["train"]["images"]), f"channels last: {done.stderr}")


def test_counts():
    """Images whose number is not the first dimension: the axis that has as many as there are labels is proposed, else none."""
    sets = make_sets((H, W))
    images = sets["train"]["images"]
    for kind in WRITERS:
        save, name = WRITERS[kind]
        for spoilt, moved in ((images.transpose(1, 2, 0), True), (images[None], True), (images[:, None].transpose(2, 3, 1, 0), True), (images[:-1], False)):
            put(kind, sets)
            write(f"d/{name('train', 'images')}", save(numpy.ascontiguousarray(spoilt)))
            done = dtrain("plan", "--config", f"{kind}.json", code=65)
            line = proposal(done.stderr.strip(), None)
            check(bool(line) == moved, f"{kind} {spoilt.shape}: {done.stderr}")
            if moved:
                write(f"d/{name('train', 'images')}", save(numpy.ascontiguousarray(eval(line, {"numpy": numpy, "images": spoilt}).reshape(images.shape))))
                dtrain("plan", "--config", f"{kind}.json")


new_folder()
configure([1, H, W])
test_images()
test_labels()
test_labels_from_one()
test_counts()
test_channels_last()
finish()
