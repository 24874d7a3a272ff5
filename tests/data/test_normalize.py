"""data.normalize and data.augment in whole runs: NumPy finds the same mean and standard deviation, any number of ranks and a resumed run the
same weights, and eval and predict what the training had.

usage: DTRAIN=... MPIEXEC=... test_normalize.py"""
import os
import re

import pypi  # before the packages
import checkpoint as checkpoints
from checks import check, dtrain, finish, need, new_folder, read_json, refused, sets, write, write_json
from samples import png

need("numpy")
import numpy

MEAN, STD = [0.2, 0.5, 0.4], [0.25, 0.5, 0.125]
AUGMENT = [{"shift": 2}, {"flip": "horizontal"}, {"crop": {"padding": 3}}]
TURNED = [{"rotate": 20}, {"flip": "horizontal"}, {"cutout": 4}, {"shift": 1}]


def config(sharding="global", **data):
    return {"data": {"format": "npy", "dir": "data", "sharding": sharding, **data},
            "model": {"input": [3, 10, 9], "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"},
                                                      {"type": "flatten"}, {"type": "dense", "units": 5}]},
            "train": {"epochs": 2, "batch": {"global": 16}}, "distributed": {"deterministic": True, "leaf": 4} if sharding == "global" else {},
            "device": "cpu", "report": False}


def run(name, settings, *arguments, ranks=1):
    write_json(f"{name}.json", settings)
    done = dtrain("--config", f"{name}.json", "--run", f"runs/{name}", *arguments, ranks=ranks, code=None)
    hashed = re.search(r"hash of the weights (\w+)", done.stderr)
    check(done.returncode == 0 or "now it is " in done.stderr, f"{name}: {done.returncode} {done.stderr[-500:]}")
    return hashed[1] if hashed else done.stderr, done.stdout.splitlines()[-1:]


def resolved(name):
    return read_json(f"runs/{name}/config.json")["data"].get("normalize")


def make_data():
    random = numpy.random.default_rng(7)
    os.makedirs("data")
    for split, n in (("train", 61), ("test", 20)):
        images = (random.integers(0, 256, (n, 3, 10, 9)) * numpy.array([1, 0.5, 0.25])[:, None, None]).astype(numpy.uint8)
        numpy.save(f"data/{split}-images.npy", images)
        numpy.save(f"data/{split}-labels.npy", images[:, 0].mean((1, 2)).argsort().argsort() * 5 // n)
    return numpy.load("data/train-images.npy")


def test_numbers(images):
    """Exactly the same at any number of ranks; NumPy's are rounded."""
    found = []
    for sharding, ranks in (("shard", 1), ("shard", 3), ("global", 2), ("replicate", 2)):
        name = f"{sharding}-{ranks}"
        run(name, config(sharding, normalize="dataset"), ranks=ranks)
        found.append(resolved(name))
    check(all(f == found[0] for f in found), f"by ranks: {found}")
    share = images / 255
    for key, numbers in (("mean", share.mean((0, 2, 3))), ("std", share.std((0, 2, 3)))):
        check(numpy.allclose(found[0][key], numbers, rtol=0, atol=1e-14), f"{key}: {found[0][key]}, NumPy's {numbers}")
    run("limited", config("shard", normalize="dataset", train_samples=32), ranks=2)
    check(numpy.allclose(resolved("limited")["mean"], share[:32].mean((0, 2, 3)), rtol=0, atol=1e-14), "of the first 32 images")
    return found[0]


def test_same_weights(numbers):
    """Whoever works, and whenever: the same bits."""
    plain = run("plain", config())
    word = run("word", config(normalize="dataset"), ranks=2)
    given = run("given", config(normalize=numbers))
    check(word == given, f"dataset: {word}, its numbers: {given}")
    results = []
    for changes, name in ((TURNED, "turned"), (AUGMENT, "augmented")):
        augmented = [run(f"{name}-{ranks}", config(normalize=numbers, augment=changes), ranks=ranks) for ranks in (1, 2, 3)]
        check(len(set(map(str, augmented))) == 1, f"{name}, 1, 2 and 3 ranks: {augmented}")
        results.append(augmented[0][0])
        cut = config(normalize="dataset", augment=changes)
        run(f"cut-{name}", cut, *sets("train.max_steps=5"), ranks=2)
        resumed = run(f"cut-{name}", cut, "--resume")
        check(resumed == augmented[0], f"{name}, resumed within the second epoch: {resumed}, whole {augmented[0]}")
    check(len({plain[0], given[0], *results}) == 4, "normalizing or augmenting changes nothing")
    other = run("cut-augmented", config(augment=AUGMENT), "--resume")
    check("data.normalize was {" in other[0] and "now it is not there (use the checkpoint's, or begin a new run)" in other[0], str(other))
    fewer = run("cut-augmented", config(normalize="dataset", augment=AUGMENT, train_samples=32), "--resume")
    check("number of training samples was" in fewer[0], f"the cause, not the mean that follows from it: {fewer}")
    return augmented[0]


def checkpoint(name):
    folder = f"runs/{name}/checkpoints"
    return os.path.join(folder, max(os.listdir(folder)))


def weights(path):
    header, data = checkpoints.split(checkpoints.read(path))
    header.pop("__metadata__")
    return {name: numpy.frombuffer(data[slice(*e["data_offsets"])], "<f4").reshape(e["shape"]).astype(float)
            for name, e in header.items() if e["dtype"] == "F32"}


def predict(path, image, numbers):
    """Probabilities by NumPy in double."""
    w = weights(path)
    mean, std = (numpy.array(numbers[key])[:, None, None] for key in ("mean", "std"))
    x = (image / 255 - mean) / std
    windows = numpy.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    y = numpy.maximum(numpy.einsum("cyxrs,kcrs->kyx", windows, w["conv1.weight"]) + w["conv1.bias"][:, None, None], 0)
    z = w["fc1.weight"] @ y.ravel() + w["fc1.bias"]
    return numpy.exp(z - z.max()) / numpy.exp(z - z.max()).sum()


def test_later(images, numbers, result):
    path = checkpoint("augmented-2")
    done = dtrain("eval", path)
    check(done.stdout.splitlines()[-1] in result[1][0], f"eval: {done.stdout} {done.stderr}, training: {result}")
    _, h, w = images[5].shape
    write("image.png", png(w, h, 2, (images[5][:, y].T.tobytes() for y in range(h))))  # RGB
    done = dtrain("predict", path, "--invert", "no", "image.png")
    told = [(int(k), float(x)) for k, x in re.findall(r"^[ *] (\d+) +([\d.]+) %$", done.stdout, re.M)]
    expected = 100 * predict(path, images[5], numbers)
    check(len(told) == 5 and numpy.allclose([x for _, x in sorted(told)], expected, atol=0.006), f"predict: {told} {done.stderr}, NumPy {expected}")
    refused(78, "data.normalize: weights alone do not say", "eval", "--config", "word.json", "--weights", path)


new_folder()
drawn = make_data()
found_numbers = test_numbers(drawn)
test_later(drawn, found_numbers, test_same_weights(found_numbers))
finish()
