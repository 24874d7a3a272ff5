"""A small run, for the tests of what `dtrain report` and `runs` make of one."""
from checks import dtrain, sets, write_json

CONFIG = {"data": {"format": "synthetic", "train_samples": 600, "test_samples": 100},
          "model": {"input": [1, 12, 12], "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"}, {"type": "flatten"},
                                                     {"type": "dense", "units": 10}]},
          "train": {"epochs": 3, "batch": {"per_rank": 20}}, "log": {"every_steps": 1}}


def train(run, ranks, *settings, code=0, resume=False):
    write_json("tiny.json", CONFIG)
    dtrain("--config", "tiny.json", "--run", run, *["--resume"] * resume, *sets(*settings), ranks=ranks if ranks > 1 else 0, code=code)
