"""`dtrain watch`: what a screen says is what the run's files say, at any size; it follows, and leaves the terminal as it was.

usage: test_watch.py DTRAIN MPIEXEC, in the folder of the sources"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from test_report import check, read, records, train, wrong

LIMIT_S = 60
BLOCKS = "▁▂▃▄▅▆▇█░"


def watch(dtrain, *arguments, locale="C.UTF-8"):
    done = subprocess.run([dtrain, "watch", *arguments], capture_output=True, text=True, timeout=LIMIT_S, env=dict(os.environ, LC_ALL=locale))
    return done.returncode, done.stdout, done.stderr


class Terminal:
    """dtrain watch on a terminal of so many lines and columns."""

    def __init__(self, dtrain, run, lines, columns):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([dtrain, "watch", run], stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
                                        env=dict(os.environ, LC_ALL="C.UTF-8"))
        self.text = b""

    def wait_for(self, pattern):
        """Reads until it is there, or nothing more comes; True: it is."""
        end = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text.decode(errors="replace")) and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536)
        return bool(re.search(pattern, self.text.decode(errors="replace")))

    def close(self):
        """Exit code, and whether the terminal is as it was."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                self.text += os.read(self.master, 65536)
        self.process.kill()
        code, same = self.process.wait(), termios.tcgetattr(self.slave) == self.before
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536)
        os.close(self.master)
        os.close(self.slave)
        return code, same


def check_ended(dtrain, run):
    """One screen, without codes, where nobody looks."""
    code, out, err = watch(dtrain, run)
    last, step = records(run, "epoch")[-1], records(run, "step")[-1]
    check(f"ended: {code} {err}", code == 0 and err == "" and "\x1b" not in out)
    for text in ("done: ran to completion", "step 45 of 45", f"test           accuracy {100 * last['test_accuracy']:.2f} % (± ", f"loss {last['test_loss']:.4f}",
                 f"{step['loss']:.4f}", f"{100 * step['accuracy']:.2f} %", f"{step['lr']:.4g}", f"{step['images_per_s']:,.0f}"):
        check(f"ended: no {text!r}: {out}", text in out)
    check(f"ended: not two ranks: {out}", re.search(r"\n +1 +\d+ +300  \S+, cpu", out))
    check(f"ended: more than 79 columns: {out}", max(map(len, out.splitlines())) <= 79)
    losses = [record["loss"] for record in records(run, "step")]
    curve = re.search(r"\ntrain loss +\S+  (\S+)", out)[1]
    check(f"ended: {len(curve)} marks for {len(losses)} losses", len(curve) == len(losses))
    check("ended: the least and the largest loss", curve[losses.index(min(losses))] == "▁" and curve[losses.index(max(losses))] == "█")
    _, plain, _ = watch(dtrain, run, locale="C")
    check(f"ended: the locale has no such characters: {plain}", plain.isascii() and "#" in plain)


def check_narrow(dtrain, run):
    """What is wider than 80 columns takes another line, or a shorter bar."""
    other = f"{run}-wide"
    shutil.copytree(run, other)
    summary, metrics = json.loads(read(f"{run}/summary.json")), read(f"{run}/metrics.jsonl")
    phases = ("data", "forward", "backward", "communication", "update")
    with open(f"{other}/summary.json", "w") as file:
        json.dump({**summary, "steps": 10 ** 14, "rank0_ms_per_step": {name: 120.0 for name in phases}}, file)
    with open(f"{other}/metrics.jsonl", "w") as file:
        file.write(metrics.replace('"last_step":45,', f'"last_step":{2 * 10 ** 14},'))
    _, out, _ = watch(dtrain, other)
    check(f"narrow: more than 79 columns: {out}", max(map(len, out.splitlines())) <= 79)
    for text in ("a step         600 ms on rank 0, data 20 %,", *(f"{name} 20 %" for name in phases), "epoch 3/3  step 100,000,000,000,000 of 200,000,000,000,000  ",
                 "  50 %\n"):
        check(f"narrow: no {text!r}: {out}", text in out)


def check_times(run):
    """What the screen shows of a run under way: the epochs' records end with what the summary has."""
    check("times", records(run, "epoch")[-1]["rank0_ms_per_step"].keys() == json.loads(read(f"{run}/summary.json"))["rank0_ms_per_step"].keys())


def add_step(run, step):
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"type": "step", "step": step, "epoch": 1, "loss": 0.5, "accuracy": 0.5, "lr": 0.1, "images_per_s": 10}) + "\n")


def going(run):
    """As if it were under way, with 1,000 steps to do: holds its lock."""
    os.remove(f"{run}/summary.json")
    config, metrics = json.loads(read(f"{run}/config.json")), read(f"{run}/metrics.jsonl")
    config["train"]["epochs"] = 100
    with open(f"{run}/config.json", "w") as file:
        json.dump(config, file)
    os.truncate(f"{run}/run.lock", 0)
    with open(f"{run}/metrics.jsonl", "w") as file:
        file.write(metrics.replace('"last_step":45,', '"last_step":1500,'))
    lock = open(f"{run}/run.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_follows(dtrain, run):
    lock = going(run)
    terminal = Terminal(dtrain, run, 24, 80)
    check("no first screen", terminal.wait_for(r"step 45 of 1,500"))
    add_step(run, 1000)
    check("it does not follow", terminal.wait_for(r"step 1,000 of 1,500.* 67 %  33:20 left"))
    with open(f"{run}/run.lock", "a") as file: # between two records
        file.write("\nstep 1100\n")
    check("it does not advance between two records", terminal.wait_for(r"step 1,100 of 1,500"))
    os.truncate(f"{run}/run.lock", 0)
    check("it does not show the last record", terminal.wait_for(r"(?s)step 1,100.*step 1,000"))
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 4, 30, 0, 0))
    check("it does not fit a smaller window", terminal.wait_for(r"\x1b\[H[^\n]{1,40}\n[^\n]{1,80}\n[^\n]{1,40}\n[^\n]{1,80}\n\x1b\[J"))
    os.write(terminal.master, b"q")
    code, same = terminal.close()
    check(f"q: {code}, the terminal is {'as it was' if same else 'changed'}", code == 0 and same)
    shown = terminal.text.decode()
    check("the screen is not given back", shown.index("\x1b[?1049h") < shown.rindex("\x1b[J") < shown.rindex("\x1b[?1049l"))
    check("the last screen does not stay", "step 1,000" in shown[shown.rindex("\x1b[?1049l"):])
    terminal = Terminal(dtrain, run, 24, 80)
    terminal.wait_for(r"step 1,000")
    terminal.process.send_signal(signal.SIGINT)
    code, same = terminal.close()
    check(f"SIGINT: {code}, the terminal is {'as it was' if same else 'changed'}", code == 0 and same)
    terminal = Terminal(dtrain, run, 24, 80)
    terminal.wait_for(r"running")
    lock.close()
    code, same = terminal.close()
    check(f"killed: {code}", code == 0 and same and "killed: no end was recorded" in terminal.text.decode())


def test_hostile(dtrain, run):
    evil = "\u202e\x1b[2J\n\x07"
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"type": "run", "step": 1e9, "config": evil, "world_size": -3, "global_batch": 1e300, "steps_per_epoch": 0,
                               "test_samples": -1, "ranks": [3, None] + [{"host": evil, "device": evil, "threads": -1e300}] * 500}) + "\n")
    code, out, err = watch(dtrain, run)
    check(f"hostile: {code} {err}", code == 0)
    check(f"hostile: {out!r}", not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out) and max(map(len, out.splitlines())) <= 79)
    for arguments, status, text in (((run, run), 64, "watch: one run at a time"),
                                    ((f"{run}/none",), 66, f"{run}/none: no such folder"), ((run, "--html", "x"), 64, "--html does not belong to watch")):
        code, out, err = watch(dtrain, *arguments)
        check(f"{arguments}: {code} {err}", code == status and err.startswith(f"dtrain: {text}") and err.count("\n") == 1 and out == "")


def main():
    dtrain, mpiexec = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="dtrain-test-watch-") as top:
        run = f"{top}/run"
        check("a run fails", train(dtrain, mpiexec, run, 2) == 0)
        check_ended(dtrain, run)
        check_narrow(dtrain, run)
        check_times(run)
        test_follows(dtrain, run)
        test_hostile(dtrain, run)
    print("\n".join(wrong) or "the screens are right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
