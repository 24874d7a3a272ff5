"""`dtrain runs` lists what the runs' folders say, whatever state they are in, the newest first; `report` and `watch` without a name take
the newest.

usage: test_runs.py DTRAIN MPIEXEC, in the folder of the sources"""
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile

from test_report import check, records, train, wrong


def dtrain(*arguments):
    done = subprocess.run([DTRAIN, *arguments], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    return done.returncode, done.stdout, done.stderr


def refused(code, text, *arguments):
    got, out, err = dtrain(*arguments)
    check(f"{arguments}: {got} {out} {err!r}", got == code and out == "" and err.count("\n") == 1 and err.startswith(f"dtrain: {text}"))


def set_time(run, seconds):
    for name in os.listdir(run):
        os.utime(os.path.join(run, name), (seconds, seconds))


def copy(source, run, seconds, *without):
    shutil.copytree(source, run)
    for name in without:
        os.remove(os.path.join(run, name))
    set_time(run, seconds)


def listed(*arguments):
    """{run: words behind it}, in the order of the lines; and what --json has."""
    code, out, err = dtrain("runs", *arguments, "--json", "runs.json")
    check(f"runs {arguments}: {code} {err}", code == 0 and err == "")
    head, *lines = out.splitlines()
    check(f"the head: {head}", head.split() == ["run", "state", "epochs", "test", "loss", "accuracy", "last", "written", "(UTC)"])
    for name in ("epochs", "loss", "accuracy"):
        end = head.index(name) + len(name)
        check(f"{name} is not below its name: {out}", all(line[end] == " " and (line[end - 1] != " " or line[end - 6:end].isspace()) for line in lines))
    with open("runs.json") as file:
        return {line.split()[0]: line.split()[1:] for line in lines}, json.load(file)["runs"]


def test_listing(first):
    last = records("runs/named", "epoch")[-1]
    result = [f"{last['test_loss']:.4g}", f"{100 * last['test_accuracy']:.2f}", "%"]
    done = ["done", "3/3", *result]
    copy("runs/named", "runs/x/20200101T000000Z", 1600000000.5)
    copy("runs/named", "runs/sweep-x/t/1", 1600000100, "summary.json")
    copy("runs/named", "runs/sweep-x/t/2/deeper", 1500000000)  # too deep to be found
    copy("runs/named", "runs/damaged", 1600000200)
    with open("runs/damaged/config.json", "w") as file:
        file.write('{"data": 5}')
    copy("runs/named", "runs/going\x1b[2J", 1600000300, "summary.json")
    copy("runs/line", "runs/other", 1600000400)
    os.makedirs("runs/nothing/in/here")
    set_time("runs/damaged", 1600000200)
    lock = os.open("runs/going\x1b[2J/run.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    rows, found = listed()
    check(f"order: {list(rows)}", list(rows) == ["runs/line", "runs/named", "runs/other", "runs/going\\x1b[2J", "runs/damaged", "runs/sweep-x/t/1",
                                                 "runs/x/20200101T000000Z"] and first == "runs/line")
    check(f"done: {rows}", rows["runs/x/20200101T000000Z"] == [*done, "2020-09-13", "12:26:40"])
    check(f"killed: {rows}", rows["runs/sweep-x/t/1"] == ["killed", "3/3", *result, "2020-09-13", "12:28:20"])
    check(f"going: {rows}", rows["runs/going\\x1b[2J"] == ["running", "3/3", *result, "2020-09-13", "12:31:40"])
    check(f"damaged: {rows}", rows["runs/damaged"] == ["damaged", "2020-09-13", "12:30:00"])
    check(f"a line has no accuracy: {rows}", rows["runs/other"][:2] == ["done", "3/3"] and "%" not in rows["runs/other"])
    row, summary = found[-1], json.load(open("runs/named/summary.json"))
    check(f"json: {row}", row == {
        "run": "runs/x/20200101T000000Z", "config": "tiny", "state": "done", "epochs": 3, "all_epochs": 3, "test_loss": summary["test_loss"],
        "test_accuracy": summary["test_accuracy"], "started": records("runs/named", "run")[0]["started"], "written": 1600000000.5})
    check(f"json, damaged: {found[4]}", found[4]["state"] == "damaged" and found[4]["test_loss"] is None)
    check("another folder", list(listed("runs/sweep-x/")[0]) == ["runs/sweep-x/t/1", "runs/sweep-x/t/2/deeper"])
    check("a run's own folder", list(listed("runs/other")[0]) == ["runs/other"])
    os.close(lock)


def test_newest():
    code, out, err = dtrain("report")
    check(f"report: {code} {out} {err}", code == 0 and out.startswith("run           runs/line\n") and err == "wrote runs/line/report.html\n")
    code, out, err = dtrain("watch")
    check(f"watch: {code} {err}", code == 0 and "done: ran to completion" in out and err == "run  runs/line\n")
    set_time("runs/named", 2000000000)
    check("another is the newest now", dtrain("report")[1].startswith("run           runs/named\n"))
    check("one that is being watched need not be", dtrain("watch", "runs/line")[2] == "")


def test_refused():
    many = ["runs/named", "many/a", "many/b", "many/c"]  # 47 links to 47 links to 47 links to one run
    for below, folder in zip(many, many[1:]):
        os.makedirs(folder)
        for i in range(47):
            os.symlink(os.path.abspath(below), f"{folder}/{i}")
    refused(64, "runs: many/c/", "runs", "many/c")
    refused(64, "runs: one folder at a time", "runs", "a", "b")
    refused(64, "watch: one run at a time", "watch", "a", "b")
    refused(66, "nowhere: no such folder", "runs", "nowhere/")
    refused(66, "runs/nothing: no runs in this folder", "runs", "runs/nothing")
    refused(73, "nowhere/", "runs", "--json", "nowhere/a.json")
    os.rename("runs", "gone")
    for command in ("runs", "report", "watch"):
        refused(66, "runs: no such folder (train first, or name", command)
    os.symlink("gone", "runs")
    check("a link to the folder", len(listed()[0]) == 7)


def main():
    with tempfile.TemporaryDirectory(prefix="dtrain-test-runs-") as top:
        os.chdir(top)
        os.mkdir("runs")
        check("a run fails", train(DTRAIN, MPIEXEC, "runs/named", 1) == 0)
        line = {"data": {"format": "linear"}, "model": {"input": [1], "layers": [{"type": "dense", "units": 1}], "loss": "mean_squared_error"},
                "train": {"epochs": 3}}
        with open("line.json", "w") as file:
            json.dump(line, file)
        check("a line fails", subprocess.run([DTRAIN, "--config", "line.json", "--run", "runs/line"], capture_output=True, timeout=120,
                                             check=False).returncode == 0)
        set_time("runs/named", 1900000000)
        set_time("runs/line", 1900000001)
        test_listing("runs/line")
        test_newest()
        test_refused()
    print("\n".join(wrong) or "runs are listed as they are")
    return bool(wrong)


DTRAIN, MPIEXEC = map(os.path.abspath, sys.argv[1:])
sys.exit(main())
