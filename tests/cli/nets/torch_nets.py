"""Networks with layers beyond a plain chain, for the tests of each such layer: as configurations, and as PyTorch modules in float64;
files in and out."""
import collections
import os

import numpy

try:
    import torch
    import torch.nn.functional as F
    Module = torch.nn.Module
except ImportError:  # test_onnx.py wants NETS alone
    Module = object

import checkpoint
import samples
from checks import SOURCE, read_json

EXTENT, N_CLASSES = 12, 4


def conv(filters, kernel=3, **more):
    return {"type": "conv2d", "filters": filters, "kernel": kernel, **more}


def norm(**more):
    return {"type": "batch_norm", **more}


def layer_norm(**more):
    return {"type": "layer_norm", **more}


def layer(kind, **more):
    return {"type": kind, **more}


END = [layer("flatten"), layer("dense", units=N_CLASSES)]
NETS = {
    "norm": [conv(5), norm(), *END],
    "relu": [conv(16, padding="same"), norm(activation="relu", momentum=0.3, epsilon=1e-3), layer("avg_pool2d", size=2), *END],
    "tails": [norm(), conv(6), norm(), layer("tanh"), layer("max_pool2d", size=2), conv(20), norm(), layer("relu"),
              layer("max_pool2d", size=3, stride=1), layer("flatten"), norm(activation="sigmoid"), layer("dense", units=7), norm(),
              layer("relu"), layer("dense", units=N_CLASSES)],
    "dense": [layer("flatten"), layer("dense", units=33), norm(activation="relu"), layer("dense", units=N_CLASSES), norm()],
    "vgg": [conv(8, padding="same"), norm(activation="relu"), conv(8, padding="same"), norm(activation="relu"), layer("max_pool2d", size=2),
            conv(16, padding="same"), norm(activation="relu"), conv(16, padding="same"), norm(activation="relu"),
            layer("max_pool2d", size=2), layer("flatten"), layer("dense", units=24), norm(activation="relu"),
            layer("dense", units=N_CLASSES)],
    # A shortcut that is the output itself, one by a projection, an output with three readers, and one that is added to itself.
    "residual": [conv(8, padding="same"), norm(activation="relu", name="stem"),
                 conv(8, padding="same"), norm(activation="relu"), conv(8, padding="same"), norm(),
                 layer("add", inputs=["stem"], activation="relu", name="one"),
                 conv(12, padding="same", stride=2, name="deep.conv"), norm(activation="tanh", name="deep.bn"), conv(12, padding="same"),
                 norm(name="two"), conv(12, 1, stride=2, input="one"), norm(name="shortcut"),
                 layer("add", inputs=["two", "shortcut"], activation="tanh"), layer("avg_pool2d", size=2), *END],
    "branches": [conv(6, activation="tanh", name="a"), conv(6, padding="same", name="b"), layer("add", inputs=["a"], name="c"),
                 layer("add", inputs=["a", "c"]), layer("tanh"), layer("max_pool2d", size=2), layer("dropout", rate=0, name="d"),
                 layer("add", inputs=["d"]), layer("flatten", name="e"), layer("dense", units=9, activation="tanh", name="f"),
                 layer("dense", units=9, input="e", name="g"), layer("add", inputs=["f"], activation="sigmoid"),
                 layer("dense", units=N_CLASSES)],
    # Three branches side by side, an output behind another, and one beside itself; rows, too.
    "concat": [conv(6, activation="tanh", name="stem"), conv(3, 1, name="a"), conv(17, padding="same", input="stem", name="b"),
               conv(4, 5, padding="same", input="stem"), layer("tanh", name="c"), layer("concat", inputs=["a", "b", "c"], name="d"),
               norm(activation="tanh"), conv(5, padding="same"), layer("concat", inputs=["d"], activation="relu"),
               conv(7, 1, activation="tanh"), layer("avg_pool2d", size=2, name="e"), layer("concat", inputs=["e", "e"]), layer("tanh"),
               layer("flatten", name="g"), layer("dense", units=9, activation="tanh", name="h"),
               layer("dense", units=7, input="g", name="i"), layer("concat", inputs=["h"], activation="sigmoid"),
               layer("dense", units=N_CLASSES)],
    "layer_norm": [layer_norm(), conv(5), layer_norm(name="a"), conv(5, padding="same"), layer_norm(activation="relu", epsilon=1e-3),
                   layer("add", inputs=["a"]), layer("avg_pool2d", size=2), layer_norm(activation="tanh"), layer("flatten"), layer_norm(),
                   layer("dense", units=9), layer_norm(activation="tanh"), layer("dense", units=N_CLASSES)],
}
NETS["resnet20"] = read_json(f"{SOURCE}/configs/cifar-resnet20.json")["model"]["layers"]

# A layer in PyTorch: of one with weights the name of its blocks, and the module for an input x; of one with several inputs the function.
MODULES = {
    "conv2d": ("conv", lambda layer, x: torch.nn.Conv2d(x.shape[1], layer["filters"], layer["kernel"], layer.get("stride", 1))),
    "dense": ("fc", lambda layer, x: torch.nn.Linear(x.shape[1], layer["units"])),
    "batch_norm": ("bn", lambda layer, x: (torch.nn.BatchNorm2d if x.dim() == 4 else torch.nn.BatchNorm1d)(
        x.shape[1], eps=layer.get("epsilon", 1e-5), momentum=layer.get("momentum", 0.1))),
    "layer_norm": ("ln", lambda layer, x: torch.nn.LayerNorm(x.shape[1:], eps=layer.get("epsilon", 1e-5))),
}
JOINTS = {"add": lambda inputs: inputs[0] + inputs[1], "concat": lambda inputs: torch.cat(inputs, 1)}


def activation(name, x):
    return x if name == "none" else getattr(torch, name)(x)


def same(x, kernel, stride):
    """Zeros as TensorFlow and Keras put them."""
    pads = []
    for extent in (x.shape[3], x.shape[2]):
        total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads)


class Net(Module):
    """The layers of a configuration, with dtrain's names."""

    def __init__(self, model):
        super().__init__()
        self.layers, self.names = model["layers"], []
        count = collections.Counter()
        shape = torch.zeros(2, *model["input"], dtype=torch.float64)
        self.double()
        for layer in self.layers:
            kind = MODULES.get(layer["type"], (None,))[0]
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
            module = MODULES[layer["type"]][1](layer, x)
            if layer["type"].endswith("_norm"):
                module.weight.data.uniform_(0.5, 1.5)
                module.bias.data.uniform_(-0.3, 0.3)
            self.add_module(name.replace(".", "_"), module.double())
        return getattr(self, name.replace(".", "_"))

    def layer(self, i, inputs):
        layer, x = self.layers[i], inputs[0]
        kind = layer["type"]
        if kind in MODULES:
            module = self.module(i, x)
            if layer.get("padding") == "same" and layer["kernel"] > 1:
                x = same(x, layer["kernel"], layer.get("stride", 1))
            return activation(layer.get("activation", "none"), module(x))
        if kind in JOINTS:
            return activation(layer.get("activation", "none"), JOINTS[kind](inputs))
        if kind in ("max_pool2d", "avg_pool2d"):
            pool = F.max_pool2d if kind == "max_pool2d" else F.avg_pool2d
            return pool(x, layer["size"], layer.get("stride", layer["size"]))
        if kind in ("flatten", "dropout"):
            return torch.flatten(x, 1) if kind == "flatten" else x
        return activation(kind, x)

    def forward(self, x):
        named = {}
        for i, layer in enumerate(self.layers):
            inputs = [named[name] for name in layer.get("inputs", [])]
            if len(inputs) < 2:  # behind the last layer's output, or another one
                inputs.insert(0, named[layer["input"]] if "input" in layer else x)
            x = self.layer(i, inputs)
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
    checkpoint.write(path, samples.safetensors({name: ("F32", list(value.shape), numpy.ascontiguousarray(value, "<f4").tobytes())
                                                for name, value in tensors.items()}))


def read_weights(path):
    header, data = checkpoint.split(checkpoint.read(path))
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype("float64")
            for name, t in header.items()}


def begin(model, path):
    """The network, and the tensors that it begins with, as the file of weights has them: in float32."""
    torch.manual_seed(3)
    net = Net(model)
    start = {key: value.astype("float32").astype("float64") for key, value in net.tensors().items()}
    net.set(start)
    write_weights(path, start)
    return net, start


def difference(got, expected, start):
    """(the largest, over the largest change of a tensor since the start; its name). A bias before a normalization does not change, but for
    rounding: over a hundredth of the largest change of all. What storing as float32 costs is taken off."""
    largest = max(abs(expected[key] - start[key]).max() for key in expected)
    return max((float(max(abs(got[key] - value).max() - 2e-7 * abs(value).max(), 0) / max(abs(value - start[key]).max(), 1e-2 * largest)), key)
               for key, value in expected.items())


def write_data(folder, n_train, n_test, extent, n_classes, seed=1):
    """Images as MNIST's files; returns (images, labels) of both sets, as dtrain reads them."""
    rng, sets = numpy.random.RandomState(seed), []
    os.makedirs(folder, exist_ok=True)
    for name, n in (("train", n_train), ("t10k", n_test)):
        images, labels = rng.randint(0, 256, (n, extent, extent)), rng.randint(0, n_classes, n)
        labels[:n_classes] = range(n_classes)
        samples.write_idx(folder, name, (extent, extent), images.astype("uint8").tobytes(), labels.tolist())
        scaled = (images.astype("float32") * numpy.float32(1 / 255)).astype("float64")
        sets.append((torch.from_numpy(scaled[:, None]), torch.from_numpy(labels)))
    return sets
