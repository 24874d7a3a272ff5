#!/usr/bin/env python3
"""Loads a checkpoint of dtrain into PyTorch and measures it there on the test set.

usage: python3 scripts/check-checkpoint.py CHECKPOINT [--data DIR]

Prints what `dtrain eval` prints: "test accuracy 98.31 % (9831/10000)". It builds the model from the checkpoint's
configuration, with PyTorch's own layers, and loads the weights by name. The safetensors package reads the file if it is
installed, else `read_plain` below, which suffices for the format.
Exit codes: 0 done, 65 corrupt or mismatched data, 66 a file is missing, 77 PyTorch is not installed.
"""
import argparse
import collections
import gzip
import json
import os
import struct
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))
try:
    import torch
    from torch import nn
except ImportError:
    print("check-checkpoint: skipped: PyTorch is not installed (package python3-torch)", file=sys.stderr)
    sys.exit(77)

EXIT_BAD_DATA, EXIT_NO_INPUT = 65, 66
BATCH = 500


def fail(code, text):
    print(f"check-checkpoint: {text}", file=sys.stderr)
    sys.exit(code)


# Reading the file


def read_plain(path):
    """Reads a safetensors file: 64-bit header length, JSON header, tensors one after the other."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(content, dtype=torch.float32, count=(end - begin) // 4, offset=8 + length + begin)
        tensors[name] = values.reshape(entry["shape"])
    return metadata, tensors


def read_with_package(path):
    import safetensors
    import safetensors.torch

    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    return metadata, safetensors.torch.load_file(path)


def read_checkpoint(path):
    try:
        result = read_with_package(path)
        reader = "the safetensors package"
    except ImportError:
        result = read_plain(path)
        reader = "the plain reader"
    print(f"{path}: {len(result[1])} tensors, read by {reader}, PyTorch {torch.__version__}", file=sys.stderr)
    return result


# The model


class Builder:
    """PyTorch's layers under dtrain's tensor names: conv1, conv2, ..., fc1, fc2, ..."""

    def __init__(self, shape):
        self.shape = tuple(shape) if len(shape) == 3 else (shape[0], 1, 1)
        self.counts = collections.Counter()
        self.layers = collections.OrderedDict()

    def add(self, name, layer):
        self.counts[name] += 1
        self.layers[f"{name}{self.counts[name]}"] = layer
        self.shape = tuple(layer.eval()(torch.zeros(1, *self.shape)).shape[1:])

    def activation(self, name):
        kinds = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "leaky_relu": nn.LeakyReLU, "gelu": nn.GELU}
        if name in kinds:
            self.add(name, kinds[name]())

    def conv2d(self, layer):
        kernel, stride = layer["kernel"], layer["stride"]
        if layer["padding"] == "same":  # ceil(in / stride) outputs; an unpaired zero goes below and to the right
            sides = []
            for extent in reversed(self.shape[1:]):
                total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
                sides += [total // 2, total - total // 2]
            self.add("pad", nn.ZeroPad2d(sides))
        self.add("conv", nn.Conv2d(self.shape[0], layer["filters"], kernel, stride))
        self.activation(layer["activation"])

    def dense(self, layer):
        if len(self.shape) != 1:  # an input of features
            self.add("flatten", nn.Flatten())
        self.add("fc", nn.Linear(self.shape[0], layer["units"]))
        self.activation(layer["activation"])

    def layer(self, layer):
        kind = layer["type"]
        if kind == "conv2d":
            self.conv2d(layer)
        elif kind == "dense":
            self.dense(layer)
        elif kind == "max_pool2d":
            self.add("pool", nn.MaxPool2d(layer["size"], layer["stride"]))
        elif kind == "avg_pool2d":
            self.add("pool", nn.AvgPool2d(layer["size"], layer["stride"]))
        elif kind == "global_avg_pool":
            self.add("pool", nn.AdaptiveAvgPool2d(1))
        elif kind == "flatten":
            self.add("flatten", nn.Flatten())
        elif kind != "dropout":  # dropout does nothing outside training
            self.activation(kind)


def build(config, tensors):
    builder = Builder(config["model"]["input"])
    for layer in config["model"]["layers"]:
        builder.layer(layer)
    model = nn.Sequential(builder.layers)
    weights = {name: value for name, value in tensors.items() if not name.startswith(("optimizer.", "ema."))}
    model.load_state_dict(weights)  # strict: every name, every shape, none left over
    return model.eval()


# The test set


def read_idx(folder, name):
    path = os.path.join(folder, name)
    path = path if os.path.exists(path) else path + ".gz"
    with open(path, "rb") as file:
        content = file.read()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    n_dims = content[3]
    dims = struct.unpack_from(f">{n_dims}I", content, 4)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * n_dims).reshape(dims)


def count_correct(model, images, labels, data, shape):
    n_correct = 0
    normalize = data.get("normalize", {"mean": [0.0], "std": [1.0]})
    mean, std = (torch.tensor(normalize[key]).reshape(1, -1, *[1] * (len(shape) - 1)) for key in ("mean", "std"))
    with torch.no_grad():
        for i in range(0, len(labels), BATCH):
            x = images[i : i + BATCH].float().reshape(-1, *shape) / 255
            n_correct += int((model((x - mean) / std).argmax(1) == labels[i : i + BATCH]).sum())
    return n_correct


def main():
    parser = argparse.ArgumentParser(add_help=False, usage="check-checkpoint.py CHECKPOINT [--data DIR]")
    parser.add_argument("checkpoint")
    parser.add_argument("--data", help="folder of the IDX files, instead of the configuration's")
    args = parser.parse_args()
    try:
        metadata, tensors = read_checkpoint(args.checkpoint)
        config = json.loads(metadata["config"])
        if config["data"]["format"] != "idx" or config["model"]["loss"] != "softmax_cross_entropy":
            fail(EXIT_BAD_DATA, f"{args.checkpoint}: not a classifier of IDX images")
        model = build(config, tensors)
        folder = args.data or config["data"]["dir"]
        images = read_idx(folder, "t10k-images-idx3-ubyte")
        labels = read_idx(folder, "t10k-labels-idx1-ubyte")
    except OSError as error:
        fail(EXIT_NO_INPUT, error)
    except Exception as error:  # any error that readers and PyTorch find in a file
        fail(EXIT_BAD_DATA, f"{args.checkpoint}: {type(error).__name__}: {error}")
    n = min(config["data"]["test_samples"] or len(labels), len(labels))
    n_correct = count_correct(model, images[:n], labels[:n], config["data"], config["model"]["input"])
    print(f"test accuracy {100 * n_correct / n:.2f} % ({n_correct}/{n})")


if __name__ == "__main__":
    main()
