"""`dtrain report --follow`: what a screen says is what the run's files say, at any size; it follows, and leaves the terminal as it was.

usage: DTRAIN=... MPIEXEC=... test_watch.py"""
import fcntl
import json
import os
import re
import shutil
import signal

import checks
from checks import DTRAIN, check, dtrain, finish, new_folder, read, read_json, records, summary, write, write_json
from terminal import Terminal
from tiny import train


def watch(*arguments, locale="C.UTF-8"):
    """Its screen, and nothing on stderr."""
    done = dtrain("report", "--follow", *arguments, env={"LC_ALL": locale})
    check(done.stderr == "", f"watch {arguments}: {done.stderr}")
    return done.stdout


def check_ended(run):
    """One screen, without codes, where nobody looks."""
    out = watch(run)
    last, step = records(run, "epoch")[-1], records(run, "step")[-1]
    check("\x1b" not in out, f"ended: {out!r}")
    for text in ("done: ran to completion", "step 45 of 45", f"test           accuracy {100 * last['test_accuracy']:.2f} % (± ", f"loss {last['test_loss']:.4f}",
                 f"{step['loss']:.4f}", f"{100 * step['accuracy']:.2f} %", f"{step['lr']:.4g}", f"{step['images_per_s']:,.0f}"):
        check(text in out, f"ended: no {text!r}: {out}")
    check(re.search(r"\n +1 +\d+ +300  \S+, cpu", out), f"ended: not two ranks: {out}")
    check(max(map(len, out.splitlines())) <= 79, f"ended: more than 79 columns: {out}")
    losses = [record["loss"] for record in records(run, "step")]
    curve = re.search(r"\ntrain loss +\S+  (\S+)", out)[1]
    check(len(curve) == len(losses), f"ended: {len(curve)} marks for {len(losses)} losses")
    check(curve[losses.index(min(losses))] == "▁" and curve[losses.index(max(losses))] == "█", "ended: the least and the largest loss")
    plain = watch(run, locale="C")
    check(plain.isascii() and "#" in plain, f"ended: the locale has no such characters: {plain}")


def check_narrow(run):
    """What is wider than 80 columns takes another line, or a shorter bar."""
    other = f"{run}-wide"
    shutil.copytree(run, other)
    phases = ("data", "forward", "backward", "communication", "update")
    write_json(f"{other}/summary.json", {**summary(run), "steps": 10 ** 14, "rank0_ms_per_step": {name: 120.0 for name in phases}})
    write(f"{other}/metrics.jsonl", read(f"{run}/metrics.jsonl").replace('"last_step":45,', f'"last_step":{2 * 10 ** 14},'))
    out = watch(other)
    check(max(map(len, out.splitlines())) <= 79, f"narrow: more than 79 columns: {out}")
    for text in ("a step         600 ms on rank 0, data 20 %,", *(f"{name} 20 %" for name in phases), "epoch 3/3  step 100,000,000,000,000 of 200,000,000,000,000  ",
                 "  50 %\n"):
        check(text in out, f"narrow: no {text!r}: {out}")


def check_times(run):
    """What the screen shows of a run under way: the epochs' records end with what the summary has."""
    check(records(run, "epoch")[-1]["rank0_ms_per_step"].keys() == summary(run)["rank0_ms_per_step"].keys(), "times")


def add_step(run, step):
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"type": "step", "step": step, "epoch": 1, "loss": 0.5, "accuracy": 0.5, "lr": 0.1, "images_per_s": 10}) + "\n")


def going(run):
    """As if it were under way, with 1,000 steps to do: holds its lock."""
    os.remove(f"{run}/summary.json")
    config, metrics = read_json(f"{run}/config.json"), read(f"{run}/metrics.jsonl")
    config["train"]["epochs"] = 100
    write_json(f"{run}/config.json", config)
    os.truncate(f"{run}/run.lock", 0)
    write(f"{run}/metrics.jsonl", metrics.replace('"last_step":45,', '"last_step":1500,'))
    lock = open(f"{run}/run.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_follows(run):
    lock = going(run)
    terminal = Terminal(DTRAIN, "report", "--follow", run)
    check(terminal.wait_for(r"step 45 of 1,500"), "no first screen")
    add_step(run, 1000)
    check(terminal.wait_for(r"step 1,000 of 1,500.* 67 %  33:20 left"), "it does not follow")
    with open(f"{run}/run.lock", "a") as file: # between two records
        file.write("\nstep 1100\n")
    check(terminal.wait_for(r"step 1,100 of 1,500"), "it does not advance between two records")
    os.truncate(f"{run}/run.lock", 0)
    check(terminal.wait_for(r"(?s)step 1,100.*step 1,000"), "it does not show the last record")
    terminal.resize(30, 4)
    check(terminal.wait_for(r"\x1b\[H[^\n]{1,40}\n[^\n]{1,80}\n[^\n]{1,40}\n[^\n]{1,80}\n\x1b\[J"), "it does not fit a smaller window")
    os.write(terminal.master, b"q")
    code = terminal.end()
    check(code == 0 and terminal.same, f"q: {code}, the terminal is {'as it was' if terminal.same else 'changed'}")
    shown = terminal.text
    check(shown.index("\x1b[?1049h") < shown.rindex("\x1b[J") < shown.rindex("\x1b[?1049l"), "the screen is not given back")
    check("step 1,000" in shown[shown.rindex("\x1b[?1049l"):], "the last screen does not stay")
    terminal = Terminal(DTRAIN, "report", "--follow", run)
    terminal.wait_for(r"step 1,000")
    terminal.process.send_signal(signal.SIGINT)
    code = terminal.end()
    check(code == 0 and terminal.same, f"SIGINT: {code}, the terminal is {'as it was' if terminal.same else 'changed'}")
    terminal = Terminal(DTRAIN, "report", "--follow", run)
    terminal.wait_for(r"running")
    lock.close()
    code = terminal.end()
    check(code == 0 and terminal.same and "killed: no end was recorded" in terminal.text, f"killed: {code}")


def test_hostile(run):
    evil = "\u202e\x1b[2J\n\x07"
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"type": "run", "step": 1e9, "config": evil, "world_size": -3, "global_batch": 1e300, "steps_per_epoch": 0,
                               "test_samples": -1, "ranks": [3, None] + [{"host": evil, "device": evil, "threads": -1e300}] * 500}) + "\n")
    out = watch(run)
    check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out) and max(map(len, out.splitlines())) <= 79, f"hostile: {out!r}")
    for arguments, status, text in (((run, run), 64, "report: --follow shows one run"),
                                    ((f"{run}/none",), 66, f"{run}/none: no such folder"), ((run, "--html", "x"), 64, "report: --follow shows one run")):
        checks.refused(status, "dtrain: " + text, "report", "--follow", *arguments)


new_folder()
train("run", 2)
check_ended("run")
check_narrow("run")
check_times("run")
test_follows("run")
test_hostile("run")
finish()
