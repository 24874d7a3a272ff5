"""`dtrain export --onnx`: ONNX's checker takes the file, and another runtime answers to test samples as dtrain does.

usage: test_onnx.py DTRAIN PRINT_LOGITS NO_PROTOBUF; models are those of configs/ and one with all that these have not"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import pypi
import torch_nets

DTRAIN, PRINT_LOGITS, NO_PROTOBUF = map(os.path.abspath, sys.argv[1:])
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "configs")
MNIST = os.environ.get("DTRAIN_DATA", "")
N = 64  # samples that are compared
EVERY_LAYER = {
    "data": {"format": "synthetic", "train_samples": 256, "test_samples": N, "normalize": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}},
    "model": {"input": [3, 13, 11], "layers": [
        {"type": "conv2d", "filters": 5, "kernel": 4, "padding": "same", "stride": 2, "activation": "tanh"},
        {"type": "avg_pool2d", "size": 2, "stride": 1}, {"type": "dropout", "rate": 0.25},
        {"type": "conv2d", "filters": 6, "kernel": 2, "padding": "same"}, {"type": "sigmoid"}, {"type": "max_pool2d", "size": 3, "stride": 2},
        {"type": "conv2d", "filters": 4, "kernel": 2, "activation": "relu"}, {"type": "leaky_relu"}, {"type": "flatten"},
        {"type": "dense", "units": 9, "activation": "sigmoid"}, {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 4}]},
    "train": {"epochs": 1}}
GELU = {
    "data": {"format": "synthetic", "train_samples": 256, "test_samples": N},
    "model": {"input": [2, 9, 9], "layers": [
        {"type": "conv2d", "filters": 5, "kernel": 3, "activation": "leaky_relu"}, {"type": "conv2d", "filters": 6, "kernel": 3, "activation": "gelu"},
        {"type": "max_pool2d", "size": 2}, {"type": "gelu"}, {"type": "flatten"}, {"type": "dense", "units": 10}]},
    "train": {"epochs": 1}}
GLOBAL_POOL = {
    "data": {"format": "synthetic", "train_samples": 256, "test_samples": N},
    "model": {"input": [3, 7, 9], "layers": [
        {"type": "conv2d", "filters": 6, "kernel": 3, "activation": "gelu"}, {"type": "global_avg_pool"}, {"type": "flatten"},
        {"type": "dense", "units": 10}]},
    "train": {"epochs": 1}}
ONLY_POOL = {
    "data": {"format": "synthetic", "train_samples": 256, "test_samples": N},
    "model": {"input": [2, 9, 9], "layers": [{"type": "max_pool2d", "size": 2}, {"type": "conv2d", "filters": 10, "kernel": 3, "stride": 5},
                                             {"type": "flatten"}]},
    "train": {"epochs": 1}}
GRAPHS = {name: {"data": ONLY_POOL["data"], "train": {"epochs": 1},
                 "model": {"input": [1, torch_nets.EXTENT, torch_nets.EXTENT], "layers": layers}}
          for name, layers in torch_nets.NETS.items() if name != "resnet20"}  # its images are larger
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED:", text)


def run(*command):
    return subprocess.run(command, capture_output=True, timeout=120, check=False)


def train(name, config, *arguments):
    """A checkpoint of a few steps."""
    steps = ["--set", "train.max_steps=8", "--set", 'train.batch={"global":16}', "--set", "train.optimizer.lr=0.01", "--set", "report=false"]
    done = run(DTRAIN, "--config", config, "--run", name, *steps, *arguments)
    check(done.returncode == 0, f"{name}: {done.stderr}")
    return os.path.join(name, "checkpoints", "step-000000000008.safetensors")


def compare(name, checkpoint, *from_weights):
    import numpy
    import onnx
    import onnxruntime
    path = f"{name}.onnx"
    done = run(DTRAIN, "export", "--onnx", path, *(from_weights or ("--checkpoint", checkpoint)))
    check(done.returncode == 0 and done.stdout.startswith(path.encode()), f"{name}: {done}")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    values = numpy.frombuffer(subprocess.run([PRINT_LOGITS, checkpoint, str(N)], stdout=subprocess.PIPE, check=True).stdout, "float32")
    n_in = N * int(numpy.prod(shape[1:]))
    samples, expected = values[:n_in].reshape(N, *shape[1:]), values[n_in:].reshape(N, -1)
    check(shape[0] == "N" and session.get_outputs()[0].shape == ["N", expected.shape[1]], f"{name}: {shape}, {session.get_outputs()[0].shape}")
    got = session.run(None, {"input": samples})[0]
    scale = numpy.abs(expected).max()
    check(numpy.allclose(got, expected, rtol=0, atol=2e-5 * scale), f"{name}: differs by {numpy.abs(got - expected).max() / scale}")
    check(numpy.ptp(expected, axis=0).max() > 1e-3 * scale, f"{name}: answers the same to all samples")
    one = session.run(None, {"input": samples[:1]})[0]
    check(numpy.allclose(one, got[:1], rtol=0, atol=2e-5 * scale), f"{name}: another batch")
    check(not any("Dropout" in node.op_type for node in onnx.load(path).graph.node), f"{name}: has dropout")
    return [output.name for output in session.get_outputs()]


def test_models():
    synthetic = ["--set", "data.format=synthetic", "--set", f"data.test_samples={N}", "--set", "data.train_samples=256"]
    data = ["--data", MNIST, "--set", f"data.test_samples={N}"] if MNIST else synthetic
    for name, arguments, output in (("mnist", data, "logits"), ("mnist-mlp", data, "logits"), ("synthetic", [], "logits"), ("linear", [], "output")):
        checkpoint = train(name, os.path.join(CONFIGS, name + ".json"), *arguments)
        check(compare(name, checkpoint) == [output], f"{name}: the output's name")
    for name, config in (("layers", EVERY_LAYER), ("gelu", GELU), ("global", GLOBAL_POOL), ("pool", ONLY_POOL), *GRAPHS.items()):
        with open(f"{name}.json", "w") as file:
            json.dump(config, file)
        checkpoint = train(name, f"{name}.json")
        compare(name, checkpoint)
        compare(f"{name}-weights", checkpoint, "--config", f"{name}.json", "--weights", checkpoint)


def refused(code, text, *command):
    done = run(*command)
    lines = done.stderr.decode().splitlines()
    check(done.returncode == code and len(lines) == 1 and lines[0].startswith("dtrain: ") and text in lines[0], f"{command}: {done}")


def test_errors():
    checkpoint = "pool/checkpoints/step-000000000008.safetensors"
    refused(66, "nowhere.safetensors", DTRAIN, "export", "--onnx", "a.onnx", "--checkpoint", "nowhere.safetensors")
    refused(73, "nowhere/: No such file", DTRAIN, "export", "--onnx", "nowhere/a.onnx", "--checkpoint", checkpoint)
    refused(65, "fc1", DTRAIN, "export", "--onnx", "a.onnx", "--config", "layers.json", "--weights", checkpoint)
    check(not os.path.exists("a.onnx"), "something was written all the same")


def test_no_protobuf():
    """A build that has not got it."""
    refused(69, "export --onnx: this dtrain was built without libprotobuf-c (install", NO_PROTOBUF, "export", "--onnx", "a.onnx", "--checkpoint", "c")
    check(b"protobuf  none" in run(NO_PROTOBUF, "--version").stdout, "--version names it")


with tempfile.TemporaryDirectory() as work:
    MNIST = MNIST and os.path.abspath(MNIST)
    os.chdir(work)
    test_no_protobuf()
    if b"protobuf  none" in run(DTRAIN, "--version").stdout:
        print("skipped: this dtrain was built without libprotobuf-c")
        sys.exit(77 if not failures else 1)
    pypi.need("onnx", "onnxruntime", "numpy")
    test_models()
    test_errors()
sys.exit(len(failures) > 0)
