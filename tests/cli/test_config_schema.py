#!/usr/bin/env python3
"""The JSON Schema for editors is a valid one, accepts what dtrain accepts, and refuses what it can express of what dtrain refuses.

usage: DTRAIN=... MPIEXEC=... test_config_schema.py"""
import copy
import glob
import json

from checks import SOURCE, dtrain, finish, read_json, skip

try:
    from jsonschema import Draft202012Validator
except ImportError:
    skip("python3-jsonschema 4 or later is not installed")

REFUSED = [  # (path, value)
    (["train", "epoch"], 1),
    (["train", "epochs"], 0),
    (["train", "epochs"], 1.5),
    (["train", "epochs"], "1"),
    (["train", "optimizer", "lr"], 0),
    (["train", "optimizer", "type"], "Adam"),
    (["train", "batch"], 128),
    (["distributed", "average"], 1),
    (["data", "format"], "parquet"),
    (["data", "dir"], ""),
    (["model", "input"], [28, 28]),
    (["model", "input"], [1, 28, 0]),
    (["model", "layers"], []),
    (["model", "layers", 0], {"type": "conv2d", "filters": 4}),
    (["model", "layers", 0], {"type": "dense", "units": 4, "filters": 4}),
    (["model", "layers", 0], {"type": "dropout", "rate": 1}),
    (["model", "layers", 0], {"units": 4}),
    (["distributed", "pipeline", "cut"], "conv2"),
    (["distributed", "pipeline", "cut"], [1]),
    (["unknown"], 1),
]


def changed(config, path, value):
    config = copy.deepcopy(config)
    place = config
    for key in path[:-1]:
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    place[path[-1]] = value
    return config


schema = read_json(f"{SOURCE}/configs/dtrain.schema.json")
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
files = [name for name in sorted(glob.glob(f"{SOURCE}/configs/*.json")) if not name.endswith(".schema.json")]
assert len(files) >= 4, files
for name in files:
    config = read_json(name)
    validator.validate(config)
    validator.validate(json.loads(dtrain("--print-config", "--config", name).stdout))  # with every default filled in
    validator.validate({"$schema": "dtrain.schema.json", **config})
    for path, value in REFUSED:
        assert not validator.is_valid(changed(config, path, value)), (name, path, value)
for key in "data", "model":
    assert not validator.is_valid({k: v for k, v in config.items() if k != key}), key
validator.validate({"extends": "mnist.json", "train": {"epochs": 3}, "data": {"dir": "other"}})  # the rest is there
for wrong in {"extends": 5}, {"extends": ""}, {"extends": "a.json", "train": {"epochs": 0}}, {"extends": "a.json", "unknown": 1}:
    assert not validator.is_valid(wrong), wrong
assert not validator.is_valid(changed(config, ["model"], {"layers": config["model"]["layers"]})), "an input is missing"
finish()
