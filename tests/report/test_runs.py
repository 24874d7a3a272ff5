"""`dtrain runs` lists what the runs' folders say, whatever state they are in, the newest first; `report` without a name takes the
newest.

usage: DTRAIN=... MPIEXEC=... test_runs.py"""
import fcntl
import os
import shutil

import checks
from checks import check, dtrain, finish, new_folder, records, summary, write, write_json
from document import Document
from tiny import train


def refused(code, text, *arguments):
    checks.refused(code, "dtrain: " + text, *arguments)


def set_time(run, seconds):
    for name in os.listdir(run):
        os.utime(os.path.join(run, name), (seconds, seconds))


def copy(source, run, seconds, *without):
    shutil.copytree(source, run)
    for name in without:
        os.remove(os.path.join(run, name))
    set_time(run, seconds)


def listed(*arguments):
    """{run: its row}, in the order of the rows."""
    return {row["run"]: row for row in Document("runs", *arguments).rows("Runs")}


def test_listing(first):
    copy("runs/named", "runs/x/20200101T000000Z", 1600000000.5)
    copy("runs/named", "runs/sweep-x/t/1", 1600000100, "summary.json")
    copy("runs/named", "runs/sweep-x/t/2/deeper", 1500000000)  # too deep to be found
    copy("runs/named", "runs/damaged", 1600000200)
    write("runs/damaged/config.json", '{"data": 5}')
    copy("runs/named", "runs/going\x1b[2J", 1600000300, "summary.json")
    copy("runs/line", "runs/other", 1600000400)
    os.makedirs("runs/nothing/in/here")
    set_time("runs/damaged", 1600000200)
    lock = os.open("runs/going\x1b[2J/run.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    rows, result = listed(), summary("runs/named")
    last = records("runs/named", "epoch")[-1]
    check(list(rows) == ["runs/line", "runs/named", "runs/other", "runs/going\x1b[2J", "runs/damaged", "runs/sweep-x/t/1",
                         "runs/x/20200101T000000Z"] and first == "runs/line", f"order: {list(rows)}")
    done = {"run": "runs/x/20200101T000000Z", "state": "done", "epochs": 3, "planned": 3, "test loss": result["test_loss"],
            "test accuracy": result["test_accuracy"], "written (UTC)": "2020-09-13 12:26:40", "config": "tiny", "note": ""}
    check(rows["runs/x/20200101T000000Z"] == done, f"done: {rows}")
    half = {**done, "test loss": last["test_loss"], "test accuracy": last["test_accuracy"]}
    check(rows["runs/sweep-x/t/1"] == {**half, "run": "runs/sweep-x/t/1", "state": "killed", "written (UTC)": "2020-09-13 12:28:20",
                                       "note": "no result was written"}, f"killed: {rows}")
    check(rows["runs/going\x1b[2J"] == {**half, "run": "runs/going\x1b[2J", "state": "running", "written (UTC)": "2020-09-13 12:31:40"},
          f"going: {rows}")
    damaged = rows["runs/damaged"]
    check(damaged["state"] == "damaged" and damaged["test loss"] is None and "config.json: data: " in damaged["note"], f"damaged: {damaged}")
    check(rows["runs/other"]["state"] == "done" and rows["runs/other"]["test accuracy"] is None, f"a line has no accuracy: {rows}")
    text = dtrain("runs").stdout
    check("runs/going\\x1b[2J" in text and "\x1b" not in text and len(text.splitlines()) == 11, f"the text: {text}")
    check(list(listed("runs/sweep-x/")) == ["runs/sweep-x/t/1", "runs/sweep-x/t/2/deeper"], "another folder")
    check(list(listed("runs/other")) == ["runs/other"], "a run's own folder")
    os.close(lock)


def test_newest():
    done = dtrain("report")
    check(done.stdout.startswith("runs/line: ") and done.stderr == "wrote runs/line/report.html\n", f"report: {done}")
    set_time("runs/named", 2000000000)
    check(dtrain("report").stdout.startswith("runs/named: tiny, done\n"), "another is the newest now")


def test_refused():
    many = ["runs/named", "many/a", "many/b", "many/c"]  # 47 links to 47 links to 47 links to one run
    for below, folder in zip(many, many[1:]):
        os.makedirs(folder)
        for i in range(47):
            os.symlink(os.path.abspath(below), f"{folder}/{i}")
    refused(64, "runs: many/c/", "runs", "many/c")
    refused(64, "runs: one folder at a time", "runs", "a", "b")
    refused(66, "nowhere: no such folder", "runs", "nowhere/")
    refused(66, "runs/nothing: no runs in this folder", "runs", "runs/nothing")
    refused(73, "nowhere/", "runs", "--json", "nowhere/a.json")
    os.rename("runs", "gone")
    for command in ("runs", "report"):
        refused(66, "runs: no such folder (train first, or name", command)
    os.symlink("gone", "runs")
    check(len(listed()) == 7, "a link to the folder")


new_folder()
os.mkdir("runs")
train("runs/named", 1)
write_json("line.json", {"data": {"format": "linear"}, "train": {"epochs": 3},
                         "model": {"input": [1], "layers": [{"type": "dense", "units": 1}], "loss": "mean_squared_error"}})
dtrain("--config", "line.json", "--run", "runs/line")
set_time("runs/named", 1900000000)
set_time("runs/line", 1900000001)
test_listing("runs/line")
test_newest()
test_refused()
finish()
