"""`dtrain export RUN FILE.onnx`: ONNX's checker takes the file, and another runtime answers to test samples as dtrain does.

usage: DTRAIN=... MPIEXEC=... test_onnx.py PRINT_LOGITS NO_PROTOBUF; models are those of configs/ and one with all that these have not"""
import os
import sys

import pypi  # before the packages
import torch_nets
from checks import SOURCE, check, checkpoint_of, dtrain, finish, need, new_folder, refused, run, sets, skip, write_json

PRINT_LOGITS, NO_PROTOBUF = map(os.path.abspath, sys.argv[1:])
MNIST = os.environ.get("DTRAIN_DATA", "")
MNIST = MNIST and os.path.abspath(MNIST)
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


def train(name, config, *arguments):
    """A checkpoint of a few steps."""
    steps = sets("train.max_steps=8", 'train.batch={"global":16}', "train.optimizer.lr=0.01", "report=false")
    dtrain("--config", config, "--run", name, *steps, *arguments)
    return checkpoint_of(name, 8)


def compare(name, checkpoint, *from_weights):
    import numpy
    import onnx
    import onnxruntime
    path = f"{name}.onnx"
    done = dtrain("export", *(from_weights or (checkpoint,)), path)
    check(f"  {path}  " in done.stdout and "ONNX opset" in done.stdout, f"{name}: {done}")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    values = numpy.frombuffer(run(PRINT_LOGITS, checkpoint, N, code=0, text=False).stdout, "float32")
    n_in = N * int(numpy.prod(shape[1:]))
    samples, expected = values[:n_in].reshape(N, *shape[1:]), values[n_in:].reshape(N, -1)
    check(shape[0] == "N" and session.get_outputs()[0].shape == ["N", expected.shape[1]], f"{name}: {shape}, {session.get_outputs()[0].shape}")
    got = session.run(None, {"input": samples})[0]
    scale = numpy.abs(expected).max()
    check(numpy.allclose(got, expected, rtol=0, atol=2e-5 * scale), f"{name}: differs by {numpy.abs(got - expected).max() / scale}")
    check(numpy.ptp(expected, axis=0).max() > 1e-3 * scale, f"{name}: answers the same to all samples")
    one = session.run(None, {"input": samples[:1]})[0]
    check(numpy.allclose(one, got[:1], rtol=0, atol=2e-5 * scale), f"{name}: another batch")
    if any(node.op_type == "BatchNormalization" for node in onnx.load(path).graph.node):  # which means training before opset 14 to some readers
        check(onnx.load(path).opset_import[0].version >= 14, f"{name}: opset {onnx.load(path).opset_import[0].version}")
    check(not any("Dropout" in node.op_type for node in onnx.load(path).graph.node), f"{name}: has dropout")
    return [output.name for output in session.get_outputs()]


def test_models():
    data = ["--data", MNIST] if MNIST else sets("data.format=synthetic", "data.train_samples=256")
    data += sets(f"data.test_samples={N}")
    for name, arguments, output in (("mnist", data, "logits"), ("mnist-mlp", data, "logits"), ("synthetic", [], "logits"), ("linear", [], "output")):
        checkpoint = train(name, f"{SOURCE}/configs/{name}.json", *arguments)
        check(compare(name, checkpoint) == [output], f"{name}: the output's name")
    for name, config in (("layers", EVERY_LAYER), ("gelu", GELU), ("global", GLOBAL_POOL), ("pool", ONLY_POOL), *GRAPHS.items()):
        write_json(f"{name}.json", config)
        checkpoint = train(name, f"{name}.json")
        compare(name, checkpoint)
        compare(f"{name}-weights", checkpoint, "--config", f"{name}.json", "--weights", checkpoint)


def test_errors():
    checkpoint = checkpoint_of("pool", 8)
    refused(66, "nowhere.safetensors", "export", "nowhere.safetensors", "a.onnx")
    refused(73, "nowhere/: No such file", "export", checkpoint, "nowhere/a.onnx")
    refused(65, "fc1", "export", "a.onnx", "--config", "layers.json", "--weights", checkpoint)
    check(not os.path.exists("a.onnx"), "something was written all the same")


def test_no_protobuf():
    """A build that has not got it."""
    refused(69, "export to ONNX: this dtrain was built without libprotobuf-c (install", "export", "c", "a.onnx",
            program=NO_PROTOBUF)
    check("protobuf  none" in run(NO_PROTOBUF, "--version").stdout, "--version names it")


new_folder()
test_no_protobuf()
if "protobuf  none" in dtrain("--version").stdout:
    skip("this dtrain was built without libprotobuf-c")
need("onnx", "onnxruntime", "numpy")
test_models()
test_errors()
finish()
