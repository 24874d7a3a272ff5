"""What the parts of gpu-check share: running programs within a time limit, training, and what has been found so far."""
import array
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # scripts/ of the sources, or share/dtrain where installed
TOP = os.path.dirname(HERE)
INSTALLED = not os.path.exists(os.path.join(TOP, "CMakeLists.txt"))
CONFIG = os.path.join(HERE if INSTALLED else TOP, "configs", "mnist.json")
SMALL = {"data.format": "synthetic", "model.layers.0.filters": 4, "model.layers.1.filters": 4, "model.layers.5.units": 16}


class Failed(Exception):
    code, output = None, ""  # of the program: its exit code, None where it was stopped at the time limit, and what it said


class Skipped(Exception):
    pass


def installed_program():
    """The one of the same installation, otherwise the one on the PATH."""
    own = os.path.join(HERE, "..", "..", "bin", "dtrain")
    return os.path.realpath(own) if os.path.exists(own) else shutil.which("dtrain") or own


class Check:
    def __init__(self, args):
        self.args, self.env = args, dict(os.environ)
        self.folder = tempfile.mkdtemp(prefix="dtrain-gpu-check-")
        self.dtrain = installed_program() if INSTALLED else os.path.join(args.build, "dtrain")
        self.part, self.deadline, self.n_runs = "", 0, 0
        self.figures = {}  # what was measured, by names that report.py knows
        self.problems = []  # (part, what, why it failed or was skipped)
        if args.module:
            self.env["DTRAIN_CUDA_MODULE"] = os.path.abspath(args.module)

    def put(self, value, *names):
        """figures[names[0]][names[1]]... = value"""
        into = self.figures
        for name in names[:-1]:
            into = into.setdefault(name, {})
        into[names[-1]] = value

    @contextlib.contextmanager
    def attempt(self, what):
        """Whatever goes wrong inside is noted, and what comes after it goes on."""
        try:
            yield
        except Skipped as why:
            self.problems.append((self.part, what, "skipped: %s" % why))
        except Exception as why:
            self.problems.append((self.part, what, "failed: %s" % why))

    def run(self, command, env=None):
        """Its stdout and stderr. Failed: it ended badly, or the part's time is over."""
        left, name = self.deadline - time.monotonic(), os.path.basename(command[0])
        if left <= 0:
            raise Failed("no time was left for %s" % name)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(command, env=dict(self.env, **(env or {})), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True, cwd=TOP)
            try:
                code = process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it left behind, too
                process.wait()
            output.seek(0)
            text = output.read()
        if code != 0:
            end = "was over its time limit" if code is None else "ended with %d" % code
            failed = Failed("%s %s: %s" % (name, end, gist(text)))
            failed.code, failed.output = code, text
            raise failed
        return text

    def program(self, name):
        """One of tests/gpu: on the double, or with the real libraries."""
        self.needs_sources()
        folder = ("fakecuda", name) if self.args.dry_run else ("gpu", "gpu_" + name)
        return os.path.join(self.args.build, "tests", *folder)

    def needs_sources(self):
        if INSTALLED:
            raise Skipped("this takes the sources, and here is an installation")

    def mpiexec(self):
        for name in ("mpiexec.hydra", "mpiexec.mpich", "mpiexec"):
            found = shutil.which(name, path=self.env["PATH"])
            if found:
                return found
        raise Failed("no mpiexec of MPICH")

    def train(self, settings, launcher=(), env=None):
        """Trains configs/mnist.json with these settings: its log, epoch records, and checkpoint's tensors."""
        self.n_runs += 1
        folder = os.path.join(self.folder, str(self.n_runs))
        every = {"device": "cuda", "log.every_s": 0, "checkpoint.every_epochs": 0, **(SMALL if self.args.dry_run else {})}
        command = [*launcher, self.dtrain, "--config", CONFIG, "--run", folder]
        command += [] if self.args.dry_run else ["--data", self.args.data]
        for key, value in {**every, **settings}.items():
            command += ["--set", "%s=%s" % (key, value)]
        log = self.run(command, env)
        gpu = re.search(r" cuda (.+?), (?:f32|tf32|bf16), [0-9a-f]{8} ", log)
        if gpu:
            self.put(gpu.group(1), "machine", "gpu")
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            epochs = [r for r in map(json.loads, file) if r["type"] == "epoch"]
        return log, epochs, tensors(max(glob.glob(os.path.join(folder, "checkpoints", "*.safetensors"))))


def gist(text):
    """The first error with what follows, and the end."""
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
