#!/usr/bin/env python3
"""Writes tests/fixtures/*.txt: PyTorch's results for inputs from a formula, so that the tests need no PyTorch.

usage: python3 scripts/make-fixtures.py            (needs PyTorch, any version from 1.12)

Both sides compute the inputs by `number`: sixteenths between -1 and 1 that look random, exact in any precision.
Each file is lines of "name: value value ..."; '#' begins a comment. Values are float32, printed so that they read back exactly.
"""
import os
import sys
import zlib

if "--help" in sys.argv:
    sys.exit(print(__doc__))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests")
OUT = os.path.join(TESTS, "fixtures")
sys.path.insert(0, os.path.join(TESTS, "lib", "python"))
from samples import number  # noqa: E402

N_STEPS = 10
N_WEIGHTS = 19


def numbers(stream, *shape):
    n = 1
    for extent in shape:
        n *= extent
    return torch.tensor([number(stream, i) for i in range(n)], dtype=torch.float64).reshape(shape)


def line(name, values):
    return name + ": " + " ".join("%.9g" % v for v in values.detach().float().flatten().tolist()) + "\n"


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "momentum": (torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
    "nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
    "adam": (torch.optim.Adam, dict(lr=0.05, betas=(0.9, 0.999), eps=1e-7)),
    "adamw": (torch.optim.AdamW, dict(lr=0.05, betas=(0.9, 0.999), eps=1e-7)),
}


def write_optimizers():
    """Weights after each of ten steps, with gradients from a formula. In double precision, so that any difference in the test is
    dtrain's error."""
    with open(os.path.join(OUT, "optimizers.txt"), "w") as out:
        out.write("# Ten steps of each optimizer, by scripts/make-fixtures.py: weight decay and clipping, then the weights after each.\n")
        for name, (make, options) in OPTIMIZERS.items():
            for weight_decay, clip in ((0, 0), (0.01, 0), (0.01, 0.5)):
                w = numbers(1, N_WEIGHTS).requires_grad_(True)
                opt = make([w], weight_decay=weight_decay, **options)
                out.write("\n%s: %g %g\n" % (name, weight_decay, clip))
                for step in range(N_STEPS):
                    w.grad = numbers(10 + step, N_WEIGHTS)
                    if clip:
                        torch.nn.utils.clip_grad_norm_([w], clip)
                    opt.step()
                    out.write(line("weights", w))


class Net(torch.nn.Module):
    """Input 2 x 8 x 8; conv 3 of 3x3, relu; conv 4 of 3x3 with padding, relu; max-pool 2; flatten; dense 5."""

    def __init__(self, *units):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(2, 3, 3)
        self.conv2 = torch.nn.Conv2d(3, 4, 3, padding=1)
        for i, (n_in, n_out) in enumerate(zip(units, units[1:]), 1):
            setattr(self, f"fc{i}", torch.nn.Linear(n_in, n_out))
        with torch.no_grad():
            for stream, (name, p) in enumerate(self.named_parameters()):
                p.copy_(numbers(100 + stream, *p.shape) * (0.5 if name.endswith("weight") else 0.25))

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc1(torch.flatten(x, 1))


class Activations(Net):
    """The same with leaky relu, gelu before the pool, and a dense layer with gelu."""

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x))
        x = F.max_pool2d(F.gelu(self.conv2(x)), 2)
        return self.fc2(F.gelu(self.fc1(torch.flatten(x, 1))))


class GlobalPool(Net):
    """Of an image that is no square: leaky relu, gelu, the average of each channel."""

    def forward(self, x):
        x = F.gelu(self.conv2(F.leaky_relu(self.conv1(x))))
        return self.fc1(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def write_network(file, net, height=8, width=8, **options):
    """One pass in double precision, rounded once at the end; then ten steps of SGD in double, for the losses."""
    n = 6
    net = net.double()
    pixels = (numbers(200, n, 2, height, width) * 16 + 15) * 8  # integers from 0 to 240
    x = pixels / 255
    y = torch.tensor([(3 * i + 1) % 5 for i in range(n)])
    with open(os.path.join(OUT, file), "w") as out:
        out.write("# A small network in PyTorch, by scripts/make-fixtures.py: one pass, then the mean loss of ten SGD steps at lr 0.1.\n")
        logits = net(x)
        loss = F.cross_entropy(logits, y, **options)
        loss.backward()
        out.write(line("logits", logits))
        out.write(line("loss", loss))
        for name, p in net.named_parameters():
            out.write(line(name, p.grad))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for _ in range(N_STEPS):
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y, **options)
            losses.append(loss.detach())
            loss.backward()
            opt.step()
        out.write(line("losses", torch.stack(losses)))


# ---- the networks of docs/nets.md; the stream of a tensor is its name

def tensor(name, *shape):
    scale = float(len(shape) == 1 and name.endswith("weight"))
    return numbers(zlib.crc32(name.encode()) % 1000, *shape) * 0.5 + scale


def conv(name, x, filters, kernel, **options):
    return F.conv2d(x, tensor(name + ".weight", filters, x.shape[1], kernel, kernel), tensor(name + ".bias", filters), **options)


class Norms:
    """Batch normalisation by name, with running statistics."""

    def __init__(self):
        self.running, self.training = {}, True

    def __call__(self, name, x):
        n = x.shape[1]
        mean, var = self.running.setdefault(name, (torch.zeros(n, dtype=x.dtype), torch.ones(n, dtype=x.dtype)))
        return F.batch_norm(x, mean, var, tensor(name + ".weight", n), tensor(name + ".bias", n), self.training)


def block(x, norm):
    stem = F.relu(norm("stem", conv("conv1", x, 16, 3, padding=1)))
    y = F.relu(norm("bn2", conv("conv2", stem, 16, 3, padding=1)))
    return F.relu(norm("bn3", conv("conv3", y, 16, 3, padding=1)) + stem)


def shape(x, norm):
    """Behind a convolution "short" of 16 filters."""
    short = conv("short", x, 16, 3)
    y = F.relu(norm("bn1", conv("conv2", F.pad(short, (0, 1, 0, 1)), 32, 3, stride=2)))
    long = norm("long", conv("conv3", y, 32, 3, padding=1))
    return F.relu(long + norm("bn3", conv("conv4", short, 32, 1, stride=2)))


def concat(x, norm):
    wide = F.relu(conv("wide", x, 16, 3, padding=1))
    return torch.cat((F.relu(conv("conv2", wide, 8, 1)), wide), 1)


def write_nets(n_train=16, n_test=8, n_classes=10):
    images = (numbers(200, n_train + n_test, 3, 32, 32) * 16 + 15) * 8 / 255
    labels = 3 * torch.arange(n_train + n_test) % n_classes

    def loss(net, norm, part):
        features = net(images[part], norm).mean((2, 3))
        logits = F.linear(features, tensor("fc1.weight", n_classes, features.shape[1]), tensor("fc1.bias", n_classes))
        return F.cross_entropy(logits, labels[part])

    with open(os.path.join(OUT, "nets.txt"), "w") as out:
        out.write("# Networks of docs/nets.md in float64, by scripts/make-fixtures.py: loss in training, then in evaluation.\n")
        for net in block, shape, concat:
            norm = Norms()
            trained = loss(net, norm, slice(n_train))
            norm.training = False
            out.write("%s: %.9g %.9g\n" % (net.__name__, trained, loss(net, norm, slice(n_train, None))))


def write_tables(n_train=40, n_test=16, batch=8):
    """An MLP on a table (tests/data/test_tables.py): losses of ten steps, then of the test set its loss and R2 or accuracy."""
    def columns(stream, *scales):
        return torch.stack([numbers(stream + k, n_train + n_test) * s + m for k, (s, m) in enumerate(scales)], 1)

    def normalize(x):
        return (x - x[:n_train].mean(0)) / x[:n_train].std(0, unbiased=False)

    features, targets = columns(300, (1024, 50000), (1, 0), (0.015625, -3)), columns(310, (256, 0), (0.5, 0))
    targets[:, 0] += features[:, 0]
    x, targets = normalize(features), normalize(targets)
    labels = (columns(320, (15, 15)).long() % 7 // 3)[:, 0]
    balanced = n_train / (3 * torch.bincount(labels[:n_train]).double())
    losses = {"mean_squared_error": (2, targets, F.mse_loss), "mean_absolute_error": (2, targets, F.l1_loss)}
    for name, weights, smoothing in ("weights", torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64), 0), ("balanced", balanced, 0), ("smooth", balanced, 0.1):
        losses[name] = (3, labels, lambda z, y, w=weights, s=smoothing: F.cross_entropy(z, y, w, label_smoothing=s))
    with open(os.path.join(OUT, "tables.txt"), "w") as out:
        out.write("# Tables in float64, by scripts/make-fixtures.py: losses of ten SGD steps, loss and R2 or accuracy of the test set.\n")
        for name, (n_outputs, y, loss) in losses.items():
            params = [(numbers(330 + k, *shape) / 2).requires_grad_() for k, shape in enumerate(((5, 3), (5,), (n_outputs, 5), (n_outputs,)))]
            sgd, values = torch.optim.SGD(params, lr=0.1, momentum=0.9), []

            def net(rows):
                return F.linear(torch.tanh(F.linear(x[rows], *params[:2])), *params[2:])

            for step in range(10):
                rows = slice(step * batch % n_train, step * batch % n_train + batch)
                values.append(loss(net(rows), y[rows]))
                sgd.zero_grad()
                values[-1].backward()
                sgd.step()
            z, wanted = net(slice(n_train, None)), y[n_train:]
            plain = loss if n_outputs == 2 else F.cross_entropy
            score = 1 - F.mse_loss(z, wanted) / wanted.var(0, unbiased=False).mean() if n_outputs == 2 else (z.argmax(1) == wanted).double().mean()
            out.write(line(name, torch.stack([*values, plain(z, wanted), score])))


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    write_optimizers()
    write_network("network.txt", Net(4 * 3 * 3, 5))
    write_network("activations.txt", Activations(4 * 3 * 3, 6, 5))
    write_network("global-pool.txt", GlobalPool(4, 5), 8, 6)
    write_network("smoothing.txt", Net(4 * 3 * 3, 5), label_smoothing=0.1)
    write_nets()
    write_tables()
