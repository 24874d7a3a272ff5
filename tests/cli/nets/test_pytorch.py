"""`dtrain export RUN FILE.safetensors`: the file has the weights of the checkpoint and nothing else, and PyTorch loads it, strictly, into the
module of the README and into one with the obvious members, which then answer as dtrain does.

usage: DTRAIN=... MPIEXEC=... test_pytorch.py PRINT_LOGITS"""
import array
import importlib.util
import os
import re
import sys

import checkpoint as checkpoints
from checks import SOURCE, check, checkpoint_of, dtrain, finish, need, new_folder, read, read_json, refused, run, sets, write, write_json

PRINT_LOGITS = os.path.abspath(sys.argv[1])
N = 64  # samples that are compared
GENERATED = {"format": "synthetic", "train_samples": 256, "test_samples": N}
# Channels, height and width all differ where the image becomes a row: 5 x 4 x 3.
SMALL = {
    "data": GENERATED,
    "model": {"input": [3, 13, 11], "layers": [
        {"type": "conv2d", "filters": 5, "kernel": 4, "activation": "tanh"},
        {"type": "conv2d", "filters": 4, "kernel": 3, "stride": 1, "activation": "relu"},
        {"type": "max_pool2d", "size": 2, "stride": 2}, {"type": "conv2d", "filters": 5, "kernel": 2, "padding": "same"}, {"type": "flatten"},
        {"type": "dense", "units": 9, "activation": "sigmoid"}, {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 5}]},
    "train": {"epochs": 1}}
NET = """
import torch
from torch import nn
from torch.nn import functional as F
from safetensors.torch import load_file

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(3, 5, 4), nn.Conv2d(5, 4, 3), nn.Conv2d(4, 5, 2, padding="same")
        self.fc1, self.fc2 = nn.Linear(5 * 4 * 3, 9), nn.Linear(9, 5)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv2(torch.tanh(self.conv1(x)))), 2)
        return self.fc2(torch.sigmoid(self.fc1(self.conv3(x).flatten(1))))

model = Net()
model.load_state_dict(load_file("small.safetensors"))
"""
# The package may be missing. Its format in a few lines, which know nothing of dtrain's.
LOAD_FILE = """
import json, struct, torch
def load_file(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    assert all(isinstance(value, str) for value in header.pop("__metadata__", {}).values())
    part = lambda entry: bytearray(data[8 + n:][slice(*entry["data_offsets"])])
    assert all(entry["dtype"] == "F32" for entry in header.values())
    return {name: torch.frombuffer(part(entry), dtype=torch.float32).reshape(entry["shape"]) for name, entry in header.items()}
"""
# Behind either module: its logits of the samples in a file.
ANSWER = """
import sys, torch
samples = torch.frombuffer(bytearray(open("samples", "rb").read()), dtype=torch.float32).reshape(-1, *map(int, sys.argv[1:]))
with torch.no_grad():
    open("logits", "wb").write(model.eval()(samples).numpy().tobytes())
"""


def train(name, config, *arguments):
    """A run of a few steps."""
    write_json(f"{name}.json", config)
    steps = sets("train.max_steps=8", 'train.batch={"global":16}', "report=false")
    dtrain("--config", f"{name}.json", "--run", name, *steps, *arguments)
    return checkpoint_of(name, 8)


def floats(data):
    values = array.array("f")
    values.frombytes(data)
    return values


def n_right(name, *weights):
    done = dtrain("eval", *weights)
    found = re.search(r"\((\d+)/%d\)" % N, done.stdout)
    check(found, f"{name}: {done}")
    return int(found[1]) if found else -1


def test_file(name, checkpoint):
    """The same tensors, byte for byte, without the optimizer's, and eval answers alike from both."""
    done = dtrain("export", name, f"{name}.safetensors")
    check(f"  {name}.safetensors  " in done.stdout, f"{name}: {done}")
    header, data = checkpoints.split(checkpoints.read(f"{name}.safetensors"))
    before, data_before = checkpoints.split(checkpoints.read(checkpoint))
    check(header.pop("__metadata__") == {"format": "pt"}, f"{name}: the metadata")
    check(header.keys() == {key for key in before if not key.startswith(("optimizer.", "__"))}, f"{name}: {list(header)}")
    for key, entry in header.items():
        check(entry["shape"] == before[key]["shape"], f"{name}: the shape of {key}")
        check(data[slice(*entry["data_offsets"])] == data_before[slice(*before[key]["data_offsets"])], f"{name}: the values of {key}")
    ours = n_right(name, checkpoint)
    check(n_right(name, "--config", f"{name}.json", "--weights", f"{name}.safetensors") == ours, f"{name}: eval from the weights alone")
    return ours


def test_torch(name, checkpoint, program, shape, ours):
    """The same logits from PyTorch, and as many of the samples are right."""
    values = run(PRINT_LOGITS, checkpoint, N, code=0, text=False).stdout
    n_in = 4 * N * shape[0] * shape[1] * shape[2]
    write("samples", values[:n_in])
    expected = floats(values[n_in:])
    paths = os.pathsep.join(["stand_in"] * (importlib.util.find_spec("safetensors") is None))
    done = run(sys.executable, "-c", program + ANSWER, *shape, code=0, env={"PYTHONPATH": paths})
    if done.returncode == 0:
        got = floats(read("logits", "rb"))
        scale = max(map(abs, expected))
        check(len(got) == len(expected) and all(abs(a - b) < 2e-5 * scale for a, b in zip(got, expected)), f"{name}: other logits")
        check(len({round(x / scale, 4) for x in expected}) > N, f"{name}: answers the same to all samples")
        check(0 < ours < N or name == "readme", f"{name}: {ours} of {N} are right, which tells nothing")


def test_errors(checkpoint):
    refused(64, "export: FILE.onnx is required", "export", checkpoint)
    refused(66, "nowhere.safetensors", "export", "nowhere.safetensors", "a.safetensors")
    refused(73, "nowhere/: No such file", "export", checkpoint, "nowhere/a.safetensors")
    refused(65, "fc3.weight", "export", "a.safetensors", "--config", "small.json", "--weights", checkpoint,
            "--set", 'model.layers=[{"type":"flatten"},{"type":"dense","units":1},{"type":"dense","units":1},{"type":"dense","units":5}]')
    check(not os.path.exists("a.safetensors"), "something was written all the same")


new_folder()
README = re.search(r"^```python\n(.*?)^```", read(f"{SOURCE}/README.md"), re.M | re.S)[1]
check(len(README.splitlines()) <= 8, "the README's Python is longer than eight lines")
MNIST = {**read_json(f"{SOURCE}/configs/mnist.json"), "data": GENERATED}
small, large = train("small", SMALL, *sets("train.optimizer.lr=0.01")), train("mnist", MNIST)
n_small, n_large = test_file("small", small), test_file("mnist", large)
test_errors(small)
need("torch")  # for the rest
write("stand_in/safetensors/torch.py", LOAD_FILE)
test_torch("small", small, NET, (3, 13, 11), n_small)
test_torch("readme", large, README, (1, 28, 28), n_large)
finish()
