#!/usr/bin/env python3
"""Writes tests/fixtures/nets.txt: losses of the networks of docs/nets.md, in float64, as PyTorch defines their layers.

usage: python3 scripts/make-net-fixtures.py            (needs NumPy)

Samples and weights come from the formula of make-fixtures.py; the stream of a tensor is its name. Each network is written down as a PyTorch
module would be, with Conv2d's symmetric padding, ZeroPad2d, BatchNorm2d's two variances and torch.cat's order.
"""
import os
import sys
import zlib

if "--help" in sys.argv:
    sys.exit(print(__doc__))
import numpy  # noqa: E402

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures", "nets.txt")
N_TRAIN, N_TEST, N_CLASSES, EPSILON, MOMENTUM = 16, 8, 10, 1e-5, 0.1


def numbers(stream, *shape):
    """Sixteenths from -15/16 to 15/16, from 32 bits mixed as in MurmurHash3's last step."""
    h = (numpy.arange(numpy.prod(shape, dtype=int), dtype=numpy.uint64) * 2654435761 + stream * 40503 + 12345) % 2**32
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return (((h >> 16) % 31).astype(float) - 15).reshape(shape) / 16


def tensor(name, *shape):
    scale = float(len(shape) == 1 and name.endswith("weight"))
    return numbers(zlib.crc32(name.encode()) % 1000, *shape) * 0.5 + scale


def relu(x):
    return numpy.maximum(x, 0)


def zero_pad(x, left, right, top, bottom):
    """torch.nn.ZeroPad2d((left, right, top, bottom))"""
    return numpy.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))


def conv(name, x, filters, kernel, stride=1, padding=0):
    """torch.nn.Conv2d"""
    weight = tensor(name + ".weight", filters, x.shape[1], kernel, kernel)
    x = zero_pad(x, *4 * (padding,))
    windows = numpy.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    y = numpy.einsum("ncyxkl,fckl->nfyx", windows, weight, optimize=True)
    return y + tensor(name + ".bias", filters)[:, None, None]


class Norms:
    """torch.nn.BatchNorm2d by name. A batch is normalized by its biased variance; the running one takes the unbiased."""

    def __init__(self):
        self.running, self.training = {}, True

    def __call__(self, name, x):
        mean, var, n = x.mean((0, 2, 3)), x.var((0, 2, 3)), x.size / x.shape[1]
        old_mean, old_var = self.running.get(name, (0 * mean, 0 * var + 1))
        if self.training:
            self.running[name] = ((1 - MOMENTUM) * old_mean + MOMENTUM * mean, (1 - MOMENTUM) * old_var + MOMENTUM * var * n / (n - 1))
        else:
            mean, var = old_mean, old_var
        scale, shift = (tensor(f"{name}.{kind}", x.shape[1])[:, None, None] for kind in ("weight", "bias"))
        return (x - mean[:, None, None]) / numpy.sqrt(var + EPSILON)[:, None, None] * scale + shift


def block(x, norm):
    stem = relu(norm("stem", conv("conv1", x, 16, 3, padding=1)))
    y = relu(norm("bn2", conv("conv2", stem, 16, 3, padding=1)))
    return relu(norm("bn3", conv("conv3", y, 16, 3, padding=1)) + stem)


def shape(x, norm):
    """Behind a convolution "short" of 16 filters."""
    short = conv("short", x, 16, 3)
    y = relu(norm("bn1", conv("conv2", zero_pad(short, 0, 1, 0, 1), 32, 3, stride=2)))
    long = norm("long", conv("conv3", y, 32, 3, padding=1))
    return relu(long + norm("bn3", conv("conv4", short, 32, 1, stride=2)))


def concat(x, norm):
    wide = relu(conv("wide", x, 16, 3, padding=1))
    return numpy.concatenate((relu(conv("conv2", wide, 8, 1)), wide), 1)


def loss(net, norm, images, labels):
    """torch.nn.functional.cross_entropy behind a global average pool and a Linear"""
    features = net(images, norm).mean((2, 3))
    logits = features @ tensor("fc1.weight", N_CLASSES, features.shape[1]).T + tensor("fc1.bias", N_CLASSES)
    logits -= logits.max(1, keepdims=True)
    return (numpy.log(numpy.exp(logits).sum(1)) - logits[numpy.arange(len(labels)), labels]).mean()


if __name__ == "__main__":
    images = (numbers(200, N_TRAIN + N_TEST, 3, 32, 32) * 16 + 15) * 8 / 255
    labels = 3 * numpy.arange(N_TRAIN + N_TEST) % N_CLASSES
    with open(OUT, "w", encoding="utf-8") as out:
        out.write("# Networks of docs/nets.md in float64, by scripts/make-net-fixtures.py: loss in training, then in evaluation.\n")
        for net in block, shape, concat:
            norm = Norms()
            trained = loss(net, norm, images[:N_TRAIN], labels[:N_TRAIN])
            norm.training = False
            out.write(f"{net.__name__}: {trained:.9g} {loss(net, norm, images[N_TRAIN:], labels[N_TRAIN:]):.9g}\n")
