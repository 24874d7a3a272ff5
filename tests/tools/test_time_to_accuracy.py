#!/usr/bin/env python3
"""scripts/time-to-accuracy adds up the epochs' seconds, finds the first epoch whose mean reaches the goal, and runs on a tiny model;
its configuration has the network and the data of configs/mnist.json.

usage: DTRAIN=... MPIEXEC=... test_time_to_accuracy.py"""
import contextlib
import io
import os
import re
import sys

from checks import DTRAIN, SOURCE, finish, read_json, script
from checks import run as run_program

os.environ.pop("DTRAIN_DATA", None)
time_to_accuracy = script("time-to-accuracy")


def epoch(step, images_per_s, accuracy):
    return {"type": "epoch", "step": step, "images_per_s": images_per_s, "test_accuracy": accuracy}


def test_seconds():
    records = [{"type": "run", "global_batch": 8}, {"type": "step"}, epoch(10, 40, 0.5), epoch(20, 20, 0.75)]
    assert list(time_to_accuracy.epochs_of(records)) == [(0.5, 2), (0.75, 6)]


def test_goal():
    """The mean of the seeds decides, and the first epoch that has it."""
    runs = [[(0.5, 1), (1, 2), (1, 3)], [(0.7, 3), (0.8, 6), (1, 9)]]
    for goal, seconds in ((0.6, 2), (0.9, 4), (0.95, 6), (1.1, None)):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert time_to_accuracy.report(runs, goal) == seconds, goal
        assert out.getvalue().splitlines()[2] == "    2      4.0   90.00 %   100.00  80.00", out.getvalue()


def run(goal, *settings):
    return run_program(sys.executable, f"{SOURCE}/scripts/time-to-accuracy", "--dtrain", DTRAIN, "--config",
                       f"{SOURCE}/configs/synthetic.json", "--seeds", 2, "--epochs", 2, "--goal", goal, *settings)


def test_runs():
    reached, missed = run(0), run(1.01)
    assert reached.returncode == 0 and re.search(r"^0\.0 % after \d+\.\d s of training$", reached.stdout, re.M), reached
    assert missed.returncode == 1 and "101.0 % not reached" in missed.stdout, missed
    for done in (reached, missed):
        assert len(re.findall(r"^ +\d +\d+\.\d +\d+\.\d\d %   \d+\.\d\d +\d+\.\d\d$", done.stdout, re.M)) == 2, done.stdout
    failed = run(0, "--data", "/nowhere")
    assert failed.returncode == 1 and "time-to-accuracy: " in failed.stderr and "/nowhere" in failed.stderr, failed


def test_network():
    usual, fast = (read_json(f"{SOURCE}/configs/{name}") for name in ("mnist.json", "mnist-fast.json"))
    for config in (usual, fast):
        del config["train"]
    assert usual == fast, fast


test_network()
test_seconds()
test_goal()
test_runs()
finish()
