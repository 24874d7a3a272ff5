#!/usr/bin/env python3
"""The gradient that docs/speed_figures.py draws: python3 docs/speed_gradient.py "$(scripts/get-data)" >docs/speed-gradient.txt

dtrain trains configs/mnist.json for 28 steps on one rank; then the first training image goes forward and back through the weights of
its checkpoint, here, in plain loops. Dropout is drawn here, too, by a seed. What is written are the places where the gradient of
the second convolution's outputs is not zero, of that filter which is in the middle when they are ordered by how many those are.
"""
import glob
import gzip
import json
import math
import operator
import os
import random
import struct
import subprocess
import sys
import tempfile

N_STEPS = 28
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def train(data):
    """The weights by name: (sizes, numbers)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dtrain", "--config", os.path.join(TOP, "configs", "mnist.json"), "--data", data, "--run", folder,
                        "--set", "train.max_steps=%d" % N_STEPS], check=True, stdout=sys.stderr)
        with open(max(glob.glob(os.path.join(folder, "checkpoints", "*.safetensors"))), "rb") as file:
            raw = file.read()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {name: about for name, about in json.loads(raw[8:begin]).items() if about.get("dtype") == "F32"}
    return {name: (t["shape"], struct.unpack_from("<%df" % math.prod(t["shape"]), raw, begin + t["data_offsets"][0]))
            for name, t in tensors.items()}


def first(data, name):
    """The first image or label of an IDX file: its height and width, or nothing, and its bytes."""
    path = os.path.join(data, name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
        n_sizes = file.read(4)[3]
        sizes = struct.unpack(">%dI" % n_sizes, file.read(4 * n_sizes))[1:]
        return sizes, file.read(math.prod(sizes))


def dot(a, b):
    return sum(map(operator.mul, a, b))


def convolve(channels, side, weights, biases):
    """Squares of side - 2; 3 x 3 kernels, no padding."""
    (n_filters, n_channels, *_), numbers = weights
    n_taps, out = 9 * n_channels, [[] for _ in range(n_filters)]
    kernels = [numbers[k * n_taps : (k + 1) * n_taps] for k in range(n_filters)]
    for y in range(side - 2):
        for x in range(side - 2):
            window = [v for c in channels for i in range(y, y + 3) for v in c[i * side + x : i * side + x + 3]]
            for k in range(n_filters):
                out[k].append(dot(window, kernels[k]) + biases[1][k])
    return out


def dropped(n, rate, rng):
    return [0 if rng.random() < rate else 1 / (1 - rate) for _ in range(n)]


def pool(plane, side):
    """The places of the largest of each 2 x 2."""
    windows = ([(y + i) * side + x + j for i in (0, 1) for j in (0, 1)] for y in range(0, side, 2) for x in range(0, side, 2))
    return [max(window, key=plane.__getitem__) for window in windows]


def dense(inputs, weights, biases):
    n = len(inputs)
    return [dot(inputs, weights[1][k * n : (k + 1) * n]) + biases[1][k] for k in range(weights[0][0])]


def back(gradient, weights):
    n = weights[0][1]
    return [dot(gradient, weights[1][i::n]) for i in range(n)]


def gradients(tensors, side, image, label):
    """At the second convolution's outputs, of each filter."""
    of, rng = lambda name: (tensors[name + ".weight"], tensors[name + ".bias"]), random.Random(1)
    relu = lambda plane: [max(v, 0) for v in plane]
    hidden = [relu(plane) for plane in convolve([[v / 255 for v in image]], side, *of("conv1"))]
    side -= 4
    planes = convolve(hidden, side + 2, *of("conv2"))
    places = [pool(plane, side) for plane in planes]
    n_places = len(places[0])
    keep = dropped(n_places * len(planes), 0.25, rng)
    flat = [v * k for v, k in zip((max(plane[i], 0) for plane, row in zip(planes, places) for i in row), keep)]
    fc1 = dense(flat, *of("fc1"))
    kept = dropped(len(fc1), 0.5, rng)
    logits = dense([max(v, 0) * k for v, k in zip(fc1, kept)], *of("fc2"))
    powers = [math.exp(v - max(logits)) for v in logits]
    g = back([p / sum(powers) - (i == label) for i, p in enumerate(powers)], tensors["fc2.weight"])
    g = back([v * k * (z > 0) for v, k, z in zip(g, kept, fc1)], tensors["fc1.weight"])
    found = [[0] * side * side for _ in planes]
    for k, (plane, row) in enumerate(zip(planes, places)):
        for i, place in enumerate(row):
            found[k][place] = g[k * n_places + i] * keep[k * n_places + i] * (plane[place] > 0)
    return side, found


def main():
    data = sys.argv[1]
    (side, _), image = first(data, "train-images-idx3-ubyte")
    _, label = first(data, "train-labels-idx1-ubyte")
    side, found = gradients(train(data), side, image, label[0])
    alive = sorted((sum(v != 0 for v in plane), k) for k, plane in enumerate(found))
    n, k = alive[len(alive) // 2]
    print("filter %d, %d steps, all filters: %.1f %%" % (k, N_STEPS, 100 * sum(n for n, _ in alive) / (len(found) * side * side)))
    for y in range(side):
        print("".join("#" if v else "." for v in found[k][y * side : (y + 1) * side]))


main()
