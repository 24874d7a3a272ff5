"""Weights of PyTorch that need a hand: a file of another kind is named for what it is, a prefix of the names is left out and said,
and `plan` and `export` say how to write a padding and a stride that PyTorch's default has not.

usage: DTRAIN=... MPIEXEC=... test_foreign_weights.py"""
import re

import checkpoint
import samples
from checks import check, checkpoint_of, dtrain, finish, new_folder, refused, write, write_json

BASE = {"data": {"format": "synthetic", "train_samples": 64, "test_samples": 8}, "report": False, "threads": 1,
        "train": {"epochs": 1, "max_steps": 1, "batch": {"global": 32}}}
END = [{"type": "flatten"}, {"type": "dense", "units": 10}]
KINDS = {
    "zip.pt": (b"PK\3\4" + b"x" * 99, "zip archive", "torch.load"), "old.pth": (b"\x80\x02}q\0" + b"x" * 99, "Python pickle", "torch.load"),
    "four.pkl": (b"\x80\x04\x95" + b"x" * 99, "Python pickle", ""), "keras.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5", ""),
    "index.json": (b'{\n "weight_map": {}}' + b" " * 99, "JSON", ""), "array.npy": (b"\x93NUMPY\1\0" + bytes(99), "NumPy", ""),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
    "page": (b"\n<!DOCTYPE html><html>" + b" " * 99, "HTML", ""), "gzip": (b"\x1f\x8b\x08\0" + b"\x33" * 99, "gzip", "")}


def configure(*layers):
    write_json("c.json", {**BASE, "model": {"input": [1, 12, 12], "layers": [*layers, *END]}})


def test_kinds():
    configure()
    for name, (content, kind, cure) in KINDS.items():
        write(name, content)
        for arguments in (("--config", "c.json", "--weights", name), (name,)):
            for text in (kind, cure):
                refused(65, text, "eval", *arguments)


def test_prefixes():
    configure({"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "batch_norm"})
    dtrain("--config", "c.json", "--run", "named")
    header, data = checkpoint.split(checkpoint.read(checkpoint_of("named", 1)))
    tensors = {name: ("F32", entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
               if name != "__metadata__" and not name.startswith("optimizer.")}
    expected = dtrain("eval", "named").stdout
    for prefix in ("module.", "_orig_mod.module.", "encoder.body.", "x"):
        for counter in ({}, {f"{prefix}bn1.num_batches_tracked": ("I64", [], bytes(8))}):
            write("w", samples.safetensors({**{prefix + name: tensor for name, tensor in tensors.items()}, **counter}))
            done = dtrain("eval", "--config", "c.json", "--weights", "w")
            check(done.stdout == expected and done.stderr == f"w: names without '{prefix}'\n", f"{prefix}: {done}")
    without = {f"module.{name}": tensor for name, tensor in tensors.items() if name != "fc1.bias"}
    mixed = {("module." if name == "conv1.weight" else "") + name: tensor for name, tensor in tensors.items()}
    for others, text in (({**tensors, "module.fc1.bias": tensors["fc1.bias"]}, "unknown: 'module.fc1.bias'"), (without, "missing: 'fc1.bias' ("),
                         (mixed, "missing: 'conv1.weight'; unknown: 'module.conv1.weight'")):
        write("w", samples.safetensors(others))
        refused(65, text, "eval", "--config", "c.json", "--weights", "w")
    done = dtrain("--config", "c.json", "--weights", "w", "--run", "mixed")
    check("; drawn: 'conv1.weight'; not used: 'module.conv1.weight'\n" in done.stderr and "whose names begin" not in done.stderr, done.stderr)


def test_plan():
    for layer, shown, pad in (
            ({"kernel": 3, "stride": 2, "padding": "same"}, "conv2d 4 3x3 stride 2 same", "(0, 1, 0, 1)"),
            ({"kernel": 4, "padding": "same"}, "conv2d 4 4x4 same", "(1, 2, 1, 2)"),
            ({"kernel": 2, "stride": 3}, "conv2d 4 2x2 stride 3", ""), ({"kernel": 5, "padding": "same"}, "conv2d 4 5x5 same", "")):
        configure({"type": "conv2d", "filters": 4, **layer}, {"type": "max_pool2d", "size": 2, "stride": 1}, {"type": "avg_pool2d", "size": 2})
        plan = " ".join(dtrain("plan", "--config", "c.json").stdout.split())
        check(f"{shown}, max_pool2d 2 stride 1" in plan and re.search(r"avg_pool2d 2[, ]", plan), f"{layer}: {plan}")
        run = f"run-{layer['kernel']}"
        dtrain("--config", "c.json", "--run", run)
        for text in (plan, dtrain("export", run, f"{run}.safetensors").stdout):
            check(("ZeroPad2d" in text) == bool(pad) and pad in text, f"{layer}: {text}")


new_folder()
test_kinds()
test_prefixes()
test_plan()
finish()
