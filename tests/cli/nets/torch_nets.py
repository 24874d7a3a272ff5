"""Networks of a configuration as PyTorch modules in float64, and files in and out, for tests that compare with PyTorch."""
import json
import os
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import checkpoint

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "none": lambda x: x}


def same(x, kernel, stride):
    """Zeros as TensorFlow and Keras put them."""
    pads = []
    for extent in (x.shape[3], x.shape[2]):
        total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class Net(torch.nn.Module):
    """The layers of a configuration, with dtrain's names."""

    def __init__(self, model):
        super().__init__()
        self.layers, self.names = model["layers"], []
        count = {"conv": 0, "fc": 0, "bn": 0}
        shape = torch.zeros(2, *model["input"], dtype=torch.float64)
        self.double()
        for layer in self.layers:
            kind = {"conv2d": "conv", "dense": "fc", "batch_norm": "bn"}.get(layer["type"])
            self.names.append(None)
            if kind:
                count[kind] += 1
                self.names[-1] = layer.get("name", f"{kind}{count[kind]}")
        self.make(shape)

    def make(self, x):
        """One pass that makes each module where the shape of its input is known."""
        self.making = True
        self.forward(x)
        self.making = False

    def module(self, i, x):
        layer, name = self.layers[i], self.names[i]
        if self.making:
            if layer["type"] == "conv2d":
                module = torch.nn.Conv2d(x.shape[1], layer["filters"], layer["kernel"], layer.get("stride", 1))
            elif layer["type"] == "dense":
                module = torch.nn.Linear(x.shape[1], layer["units"])
            else:
                of = torch.nn.BatchNorm2d if x.dim() == 4 else torch.nn.BatchNorm1d
                module = of(x.shape[1], eps=layer.get("epsilon", 1e-5), momentum=layer.get("momentum", 0.1))
                module.weight.data.uniform_(0.5, 1.5)
                module.bias.data.uniform_(-0.3, 0.3)
            self.add_module(name.replace(".", "_"), module.double())
        return getattr(self, name.replace(".", "_"))

    def layer(self, i, inputs, previous):
        layer, x = self.layers[i], inputs[0]
        kind = layer["type"]
        if kind in ("conv2d", "dense", "batch_norm"):
            module = self.module(i, x)
            if layer.get("padding") == "same" and layer["kernel"] > 1:
                x = same(x, layer["kernel"], layer.get("stride", 1))
            return ACTIVATIONS[layer.get("activation", "none")](module(x))
        if kind == "add":
            first, second = inputs if len(inputs) == 2 else (previous, inputs[0])
            return ACTIVATIONS[layer.get("activation", "none")](first + second)
        if kind in ("max_pool2d", "avg_pool2d"):
            pool = F.max_pool2d if kind == "max_pool2d" else F.avg_pool2d
            return pool(x, layer["size"], layer.get("stride", layer["size"]))
        if kind in ("flatten", "dropout"):
            return torch.flatten(x, 1) if kind == "flatten" else x
        return ACTIVATIONS[kind](x)

    def forward(self, x):
        named = {}
        for i, layer in enumerate(self.layers):
            inputs = [named[name] for name in layer.get("inputs", [layer["input"]] if "input" in layer else [])] or [x]
            x = self.layer(i, inputs, x)
            if "name" in layer:
                named[layer["name"]] = x
        return x

    def tensors(self):
        """As dtrain saves them."""
        found = {}
        for i, name in enumerate(self.names):
            if name:
                module = getattr(self, name.replace(".", "_"))
                for key, value in module.state_dict().items():
                    if key != "num_batches_tracked":
                        found[f"{name}.{key}"] = value.detach().numpy().astype("float64")
        return found

    def set(self, tensors):
        for i, name in enumerate(self.names):
            if name:
                module = getattr(self, name.replace(".", "_"))
                state = {key: torch.from_numpy(tensors[f"{name}.{key}"].copy()) for key in module.state_dict() if key != "num_batches_tracked"}
                module.load_state_dict(state, strict=False)


def write_weights(path, tensors):
    """safetensors of float32."""
    header, parts, at = {}, [], 0
    for name, value in tensors.items():
        data = numpy.ascontiguousarray(value, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_weights(path):
    header, data = checkpoint.split(checkpoint.read(path))
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype("float64")
            for name, t in header.items()}


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("uint8").tobytes())


def write_data(folder, n_train, n_test, extent, n_classes, seed=1):
    """Images as MNIST's files; returns (images, labels) of both sets, as dtrain reads them."""
    rng, sets = numpy.random.RandomState(seed), []
    os.makedirs(folder, exist_ok=True)
    for name, n in (("train", n_train), ("t10k", n_test)):
        images, labels = rng.randint(0, 256, (n, extent, extent)), rng.randint(0, n_classes, n)
        labels[:n_classes] = range(n_classes)
        write_idx(os.path.join(folder, f"{name}-images-idx3-ubyte"), images)
        write_idx(os.path.join(folder, f"{name}-labels-idx1-ubyte"), labels)
        scaled = (images.astype("float32") * numpy.float32(1 / 255)).astype("float64")
        sets.append((torch.from_numpy(scaled[:, None]), torch.from_numpy(labels)))
    return sets
