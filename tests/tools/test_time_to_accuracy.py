#!/usr/bin/env python3
"""scripts/time-to-accuracy adds up the seconds of the steps, and prints a row per number of ranks; it runs on a tiny model.

usage: DTRAIN=... MPIEXEC=... test_time_to_accuracy.py"""
import contextlib
import io
import os
import re
import sys

from checks import DTRAIN, SOURCE, finish, script
from checks import run as run_program

os.environ.pop("DTRAIN_DATA", None)
time_to_accuracy = script("time-to-accuracy")


def epoch(step, images_per_s, accuracy):
    return {"type": "epoch", "step": step, "images_per_s": images_per_s, "test_accuracy": accuracy}


def test_seconds():
    """Of two epochs of 10 steps of 8 images; the accuracy is the last one's."""
    records = [{"type": "run", "global_batch": 8}, {"type": "step"}, epoch(10, 40, 0.5), epoch(20, 20, 0.75)]
    assert time_to_accuracy.result_of(records) == (0.75, 6)


def test_row():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert time_to_accuracy.row("name", [(0.98, 1, 2), (1.0, 3, 5)]) == 0.99
    assert out.getvalue().split() == ["name", "2", "99.00", "%", "1.41", "2.00", "3.50"], out.getvalue()


def run(goal, *settings):
    return run_program(sys.executable, f"{SOURCE}/scripts/time-to-accuracy", "--dtrain", DTRAIN, "--mpirun", os.environ["MPIEXEC"],
                       "--config", f"{SOURCE}/configs/synthetic.json", "--seeds", 2, "--epochs", 2, "--goal", goal, *settings)


def test_runs():
    reached, missed = run(0), run(1.01, "--ranks", 1)
    assert reached.returncode == 0 and re.search(r"^0\.00 % reached$", reached.stdout, re.M), reached
    assert missed.returncode == 1 and "101.00 % not reached" in missed.stdout, missed
    for done, ranks in ((reached, ["1 rank", "2 ranks"]), (missed, ["1 rank"])):
        rows = re.findall(r"^dtrain, (\d ranks?) +2 +\d+\.\d\d % +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", done.stdout, re.M)
        assert rows == ranks, done.stdout
    failed = run(0, "--data", "/nowhere")
    assert failed.returncode == 1 and "time-to-accuracy: " in failed.stderr and "/nowhere" in failed.stderr, failed


test_seconds()
test_row()
test_runs()
finish()
