"""The names of the classes are kept with the weights: other folders, or another order of them, are refused where they would be evaluated or
trained on; fewer folders of the same names, arrays, and weights alone are not compared.

usage: DTRAIN=... MPIEXEC=... test_class_names.py"""
import os
import shutil

from checks import check, dtrain, finish, new_folder, refused, sets, write_json
from samples import png

SIDE = 6


def folder(name, *classes, tests=None):
    for split in ("train", "test"):
        for number, label in enumerate(classes):
            os.makedirs(os.path.join(name, split, label), exist_ok=True)
            for i in range(4 if split == "train" or tests is None or label in tests else 0):
                rows = b"".join(b"\0" + bytes((40 * number + 9 * i + x) % 256 for x in range(SIDE)) for _ in range(SIDE))
                with open(os.path.join(name, split, label, f"{i}.png"), "wb") as file:
                    file.write(png(SIDE, SIDE, 0, rows))
    return name


def config(name, n_classes, data):
    write_json(name, {"data": {"format": "images", "dir": data}, "threads": 1, "report": False,
                      "model": {"input": [1, SIDE, SIDE], "layers": [{"type": "flatten"}, {"type": "dense", "units": n_classes}]},
                      "train": {"epochs": 1, "batch": {"global": 4}}})
    return name


def main():
    three = config("three.json", 3, folder("animals", "cat", "dog", "owl"))
    dtrain("--config", three, "--run", "r", code=0)
    dtrain("eval", "--checkpoint", "r", code=0)
    others = {"renamed": (("cat", "dog", "yak"), "class 2 was 'owl', now it is 'yak'"),
              "shifted": (("ant", "cat", "dog"), "class 0 was 'cat', now it is 'ant'"),
              "prefixed": (("cat", "doge", "owl"), "class 1 was 'dog', now it is 'doge'"),
              "control": (("cat", "dog\n", "owl"), "class 1 was 'dog', now it is 'dog\\x0a'")}
    for data, (classes, text) in others.items():
        folder(data, *classes)
        refused(65, text, "eval", "--checkpoint", "r", "--data", data)
        refused(65, text, "eval", "--checkpoint", "r", "--data", data, ranks=2)
        refused(65, text, "--config", three, "--run", "r", "--resume", "--data", data, *sets("train.epochs=2"))
    refused(65, "trained with the classes 'cat', 'dog', 'owl', the data have 'ant', 'cat', 'dog' (use data with the same class folders)", "eval",
            "--checkpoint", "r", "--data", "shifted")
    dtrain("eval", "--checkpoint", "r", "--data", folder("fewer", "cat", "dog", "owl", tests=("cat",)), code=0)
    dtrain("--config", three, "--run", "r", "--resume", "--data", "fewer", *sets("train.epochs=2"), code=0)
    dtrain("export", "--checkpoint", "r", "--safetensors", "w.safetensors", code=0)
    dtrain("eval", "--config", three, "--weights", "w.safetensors", "--data", "renamed", code=0)
    dtrain("eval", "--config", three, "--weights", "r/checkpoints/" + sorted(os.listdir("r/checkpoints"))[-1], "--data", "renamed", code=0)


def many():
    """Of many classes the first that differ are shown, and a checkpoint resumes with all its names."""
    names = [f"{i:03d}-{'x' * 60}" for i in range(120)]
    big = config("many.json", 120, folder("many", *names))
    dtrain("--config", big, "--run", "m", *sets("train.max_steps=2"), code=0)
    dtrain("--config", big, "--run", "m", "--resume", *sets("train.max_steps=3"), code=0)
    shutil.copytree("many", "other")
    for split in ("train", "test"):
        os.rename(f"other/{split}/{names[77]}", f"other/{split}/077-y")
    done = refused(65, "class 77 was '077-xxxx", "eval", "--checkpoint", "m", "--data", "other")
    check(done is None or len(done.stderr) < 600, f"the line is too long: {done}")


new_folder()
main()
many()
finish()
