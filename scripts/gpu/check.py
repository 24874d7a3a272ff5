"""Shared code of gpu-check's parts: runs programs within a time limit, trains, and reports rows of one table."""
import array
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # scripts/ of the sources, or share/dtrain where installed
TOP = os.path.dirname(HERE)
INSTALLED = not os.path.exists(os.path.join(TOP, "CMakeLists.txt"))
CONFIGS = os.path.join(HERE if INSTALLED else TOP, "configs")
SMALL = {"data.format": "synthetic", "model.layers.0.filters": 4, "model.layers.1.filters": 4, "model.layers.5.units": 16}
FIGURES = ("us", "%", "times", "nodes", "TFLOP/s")  # units of numbers that mean nothing on fake CUDA


class Failed(Exception):
    code, output = None, ""  # of the program: exit code and output


class Cut(Failed):
    """The part's time is up."""


class Skipped(Exception):
    pass


def installed_program():
    """The program of the same installation, otherwise the one on the PATH."""
    own = os.path.join(HERE, "..", "..", "bin", "dtrain")
    return os.path.realpath(own) if os.path.exists(own) else shutil.which("dtrain") or own


class Check:
    def __init__(self, args):
        self.args, self.env = args, dict(os.environ)
        self.folder = tempfile.mkdtemp(prefix="dtrain-gpu-check-")
        self.dtrain = installed_program() if INSTALLED else os.path.join(args.build, "dtrain")
        self.part, self.deadline, self.n_runs = "there", 0, 0
        self.there = {}  # what probe.look found
        self.found, self.passed, self.below = {}, True, ""  # by part and row; whether no row failed; text for below the table
        if args.module:
            self.env["DTRAIN_CUDA_MODULE"] = os.path.abspath(args.module)

    def write(self, text):
        """To the terminal and the report, which is complete at any moment, also after a kill."""
        print(text, flush=True)
        with open(self.args.report, "a") as file:
            file.write(text + "\n")

    def heading(self):
        os.makedirs(os.path.dirname(self.args.report), exist_ok=True)
        how = "on fake CUDA: times, rates and accuracies mean nothing" if self.args.dry_run else "with " + self.dtrain
        self.write("\n## gpu-check, %s, %s\n" % (time.strftime("%Y-%m-%d %H:%M"), how))
        self.write("| part | what | found | limit | |\n|---|---|---|---|---|")

    def say(self, name, text, limit, verdict):
        """One row of the table."""
        cells = (self.part, name, text.replace("\n", "; ").replace("|", "\\|"), limit, verdict)
        self.write("| %-9s | %-43s | %-33s | %-8s | %-7s |" % cells)
        self.passed = self.passed and verdict not in ("FAIL", "cut")

    def row(self, name, unit, function, *args, least=None, most=None):
        """Reports function's number; or numbers, as median, min and max; or yes or no; or text. After a failure the next rows
        follow, unless the part's time is up. Returns the value, or None."""
        try:
            found = function(*args)
        except Cut as why:
            raise Cut("in %s: %s" % (name, why)) from why
        except Skipped as why:
            return self.say(name, str(why), "", "skipped")
        except Exception as why:
            return self.say(name, str(why) or repr(why), "", "FAIL")
        value = statistics.median(found) if isinstance(found, list) else found
        text = text_of(value, unit)
        text += " (%s to %s)" % (text_of(min(found)), text_of(max(found))) if isinstance(found, list) else ""
        limit = "" if least is most is None else "<= " + text_of(most) if least is None else ">= " + text_of(least)
        verdict = "FAIL" if value is False else "pass" if value is True else ""
        if limit:
            fine = value <= most if least is None else value >= least
            verdict = "-" if self.args.dry_run and unit in FIGURES else "pass" if fine else "FAIL"
        self.say(name, text, limit, verdict)
        if not isinstance(value, (bool, str)):
            self.found[self.part, name] = value
        return value

    def attach(self, name, text):
        """Puts a program's output below the table."""
        self.below += "\n%s:\n```\n%s\n```\n" % (name, text.strip())

    def lacks(self, needs):
        """The missing requirements of `needs`, each with a cure."""
        there = {"the sources": not INSTALLED, "the program": os.access(self.dtrain, os.X_OK),
                 "MNIST": self.args.dry_run or glob.glob(self.args.data + "/t*-ubyte*")}
        help_of = {"the sources": "an installation has no sources", "the program": "no %s (the part build makes it)" % self.dtrain,
                   "MNIST": "no MNIST in %s (--data DIR)" % self.args.data, "mpiexec": "no mpiexec of MPICH"}
        return [help_of.get(name, "no " + name) for name in needs if not there.get(name, self.there.get(name))]

    def run(self, command, env=None, each=None):
        """Returns its stdout and stderr. each: called with every line as it comes. Failed: it failed; Cut: the part's time is up."""
        name = os.path.basename(command[0])
        if self.deadline <= time.monotonic():
            raise Cut("before " + name)
        process = subprocess.Popen(command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, cwd=TOP, text=True, errors="replace")
        timer = threading.Timer(self.deadline - time.monotonic(), end, [process])
        timer.start()
        failed, lines = Failed(), []
        try:
            for line in process.stdout:
                lines.append(line)
                if each:
                    each(line.rstrip("\n"))
            failed.code = process.wait()
        finally:
            timer.cancel()
            end(process)  # its children, too
            process.wait()
        text = "".join(lines)
        if failed.code == 0:
            return text
        failed.args = ("%s ended with %d: %s" % (name, failed.code, gist(text)),)
        if failed.code == -signal.SIGKILL and self.deadline <= time.monotonic():
            failed = Cut("in %s: %s" % (name, gist(text).split("\n")[-1]))
        failed.output = text
        raise failed

    def test_program(self, name):
        """The path of one of tests/gpu, on fake CUDA or with the real libraries."""
        fake = "cuda" if name.startswith("test_") else "fakecuda"
        path = os.path.join(self.args.build, "tests", *((fake, name) if self.args.dry_run else ("gpu", "gpu_" + name)))
        if not os.access(path, os.X_OK):
            raise Skipped("no %s (the part build makes it)" % path)
        return path

    def configured(self, settings, config="mnist.json"):
        """dtrain's options for a training with these settings."""
        every = {"device": "cuda"}
        if self.args.dry_run:
            every.update(SMALL if config == "mnist.json" else {"data.format": "synthetic"})
        words = ["--config", os.path.join(CONFIGS, config), *([] if self.args.dry_run else ["--data", self.args.data])]
        for key, value in {**every, **settings}.items():
            words += ["--set", "%s=%s" % (key, value)]
        return words

    def command(self, settings, config="mnist.json", run=None):
        quiet = {"log.every_s": 0, "checkpoint.every_epochs": 0}
        return [self.dtrain, *self.configured({**quiet, **settings}, config), "--run", run or self.new_folder()]

    def new_folder(self):
        self.n_runs += 1
        return os.path.join(self.folder, str(self.n_runs))

    def ranks(self, n):
        return [self.there["mpiexec"], "-np", str(n)]

    def train(self, settings, launcher=(), env=None):
        """Trains, and returns log, epoch records, and the checkpoint's tensors."""
        folder = self.new_folder()
        log = self.run([*launcher, *self.command(settings, run=folder)], env)
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            epochs = [r for r in map(json.loads, file) if r["type"] == "epoch"]
        return log, epochs, tensors(max(glob.glob(os.path.join(folder, "checkpoints", "*.safetensors"))))


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def text_of(value, unit=""):
    if isinstance(value, (bool, str)):
        return {True: "yes", False: "no"}.get(value, value)
    number = "%.3g" % value if abs(value) < 0.1 else "%d" % value if value % 1 == 0 else "%.2f" % value
    return (number + " " + unit).strip()


def gist(text):
    """The first error with the lines after it, and the end."""
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.search("error", line, re.I)), len(lines))
    return "\n".join(lines[first : first + 5] + lines[max(first + 5, len(lines) - 5) :] if first < len(lines) else lines[-5:])


def tensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    n = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, about in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__" and about["dtype"] == "F32":
            begin, end = about["data_offsets"]
            found[name] = array.array("f", raw[8 + n + begin : 8 + n + end])
    return found
