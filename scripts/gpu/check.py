"""Shared code of gpu-check's parts: running programs within a time limit, training, and recording results."""
import array
import contextlib
import glob
import hashlib
import json
import math
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from gpu import report

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # scripts/ of the sources, or share/dtrain where installed
TOP = os.path.dirname(HERE)
INSTALLED = not os.path.exists(os.path.join(TOP, "CMakeLists.txt"))
CONFIGS = os.path.join(HERE if INSTALLED else TOP, "configs")
SMALL = {"data.format": "synthetic", "model.layers.0.filters": 4, "model.layers.1.filters": 4, "model.layers.5.units": 16}


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
        self.part, self.deadline, self.n_runs = "", 0, 0
        self.since = 0  # start of the next row's measurement
        self.probe, self.record, self.clocks = {}, None, None  # set when known
        if args.module:
            self.env["DTRAIN_CUDA_MODULE"] = os.path.abspath(args.module)

    def program_id(self):
        """A digest of the program; "" if there is none yet."""
        if not os.path.exists(self.dtrain):
            return ""
        digest = hashlib.sha256()
        beside = os.path.dirname(self.dtrain)
        for path in (self.dtrain, self.args.module or os.path.join(beside, "libdtrain_cuda.so"),
                     os.path.join(beside, "..", "lib", "dtrain", "libdtrain_cuda.so")):
            if os.path.exists(path):
                with open(path, "rb") as file:
                    digest.update(file.read())
        return digest.hexdigest()[:12]

    def lacks(self, needs):
        """The missing requirements of `needs`, each with a cure."""
        there = {"the sources": not INSTALLED, "the program": os.access(self.dtrain, os.X_OK),
                 "MNIST": self.args.dry_run or glob.glob(self.args.data + "/t*-ubyte*")}
        help_of = {"the sources": "an installation has no sources", "the program": "no %s (the part build makes it)" % self.dtrain,
                   "MNIST": "no MNIST in %s (--data DIR)" % self.args.data, "mpiexec": "no mpiexec of MPICH"}
        return [help_of.get(name, "no " + name) for name in needs if not there.get(name, self.probe.get(name))]

    def measure(self, name, unit, function, *args):
        """A row: function's number; or numbers, as median, min and max; or True, False or a text; or a dict of the row's own.

        A failure is recorded, and later rows continue, unless the part's time is up.
        """
        if self.record.has(self.part, name):
            return
        row = {"name": name}
        try:
            found = function(*args)
            if isinstance(found, list):
                found = {"value": statistics.median(found), "min": min(found), "max": max(found), "n": len(found)}
            found = found if isinstance(found, dict) else {"value": found}
            if not all(math.isfinite(x) for x in found.values() if isinstance(x, float)):
                raise Failed("not a finite number")  # JSON has none either
            row.update(found, unit=unit)
            row.update(self.clocks.between(self.since, time.monotonic()) if self.clocks and unit in report.CLOCKED else {})
        except Cut as why:
            raise Cut("in %s: %s" % (name, why)) from why
        except Skipped as why:
            row["skipped"] = str(why)
        except Exception as why:
            row["failed"] = str(why) or repr(why)
        self.note(row)

    def note(self, row):
        self.record.add(self.part, row)
        self.since = time.monotonic()
        print(report.line(self.part, row), flush=True)

    def run(self, command, env=None, each=None):
        """Returns its stdout and stderr. each: called with every line as it comes. Failed: it failed; Cut: the part's time is up."""
        name = os.path.basename(command[0])
        if self.deadline <= time.monotonic():
            raise Cut("before " + name)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(command, env=dict(self.env, **(env or {})), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True, cwd=TOP)
            try:
                self.follow(process, output, each)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its children, too
                process.wait()
            output.seek(0)
            text = output.read()
        code = process.returncode
        if code != 0:
            failed = Failed("%s ended with %d: %s" % (name, code, gist(text)))
            if code == -signal.SIGKILL and self.deadline <= time.monotonic():
                failed = Cut("in %s: %s" % (name, gist(text).split("\n")[-1]))
            failed.code, failed.output = code, text
            raise failed
        return text

    def follow(self, process, output, each):
        """Waits until it ends, or the time is up."""
        with open("/proc/self/fd/%d" % output.fileno(), errors="replace") as lines:
            rest, over = "", False
            while not over:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=min(0.1, max(0.01, self.deadline - time.monotonic())))
                over = process.poll() is not None or self.deadline <= time.monotonic()
                *whole, rest = (rest + lines.read()).split("\n")
                for line in whole if each else ():
                    each(line)

    def test_program(self, name):
        """Runs one of tests/gpu, on fake CUDA or with the real libraries."""
        fake = "cuda" if name.startswith("test_") else "fakecuda"
        folder = (fake, name) if self.args.dry_run else ("gpu", "gpu_" + name)
        path = os.path.join(self.args.build, "tests", *folder)
        if not os.access(path, os.X_OK):
            raise Skipped("no %s (the part build makes it)" % path)
        return path

    def configured(self, settings, config="mnist.json"):
        """dtrain's command line for a training with these settings."""
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
        return [self.probe["mpiexec"].split()[0], "-np", str(n)]

    def train(self, settings, launcher=(), env=None, config="mnist.json"):
        """Trains, and returns log, epoch records, and the checkpoint's tensors."""
        folder = self.new_folder()
        log = self.run([*launcher, *self.command(settings, config, folder)], env)
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            epochs = [r for r in map(json.loads, file) if r["type"] == "epoch"]
        return log, epochs, tensors(max(glob.glob(os.path.join(folder, "checkpoints", "*.safetensors"))))

    def warn(self, text):
        print("gpu-check: " + text, file=sys.stderr, flush=True)


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
