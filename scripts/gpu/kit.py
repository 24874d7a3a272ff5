"""What the parts of gpu-check share: programs under limits of time, trainings, and rows of a summary that is whole at any moment.

A row is a line of summary.txt: SECONDS | PART | NAME | VERDICT | FOUND. Verdicts: ok; FAIL (it ended wrong, or is beyond its limit),
CRASH (a signal ended it), CUT (its time was over), "not begun" (no time was left), skipped (something is missing), and fake (a figure
of fake CUDA, which means nothing). What programs said is in all.log.
"""
import array
import concurrent.futures
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
import sysconfig
import tempfile
import threading
import time

BAD = ("FAIL", "CRASH", "CUT", "not begun")
FIGURES = ("us", "%", "TFLOP/s")  # units that mean nothing on fake CUDA
# Fake CUDA is slow: no training there has more than this.
SMALLEST = {"train.epochs": 2, "train.max_steps": 8, "train.batch.per_rank": 4, "data.train_samples": 26, "data.test_samples": 8}
SMALL_NET = {"model.layers.0.filters": 4, "model.layers.1.filters": 4, "model.layers.5.units": 16}


class Fault(Exception):
    """Why a row has nothing to show; code and output: of the program that ended."""
    def __init__(self, text, verdict="FAIL", code=None, output=""):
        super().__init__(text)
        self.verdict, self.code, self.output = verdict, code, output


class Kit:
    def __init__(self, folder, out, seconds, fake):
        self.begin = time.monotonic()
        self.out, self.fake, self.data = out, fake, os.path.join(folder, "mnist")
        self.work = tempfile.mkdtemp(prefix="dtrain-gpu-check-")
        self.mark = "GPU_CHECK_CALL=" + self.work  # in the environment of every program
        self.lock, self.n_calls = threading.Lock(), 0
        self.here = threading.local()  # part, deadline and last verdict of a thread
        self.here.part, self.here.deadline = "gpu-check", self.begin + seconds
        self.lines, self.under_way, self.faults, self.failed = [], {}, [], {}  # failed: {name: what gives its command}
        os.makedirs(out, exist_ok=True)
        if os.path.exists(os.path.join(out, "summary.txt")):  # an earlier call's rows stay
            with open(os.path.join(out, "summary.txt")) as file:
                self.lines = [line for line in file.read().splitlines() if " | " in line]
        shutil.unpack_archive(os.path.join(folder, "bundle.tgz"), self.work)
        self.env = self.environment()

    def bin(self, name):
        return os.path.join(self.work, "bin", name)

    def tool(self, name):
        """One of NVIDIA's programs; what needs it is skipped where it is missing."""
        more = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", *sorted(glob.glob("/opt/nvidia/nsight-compute/*"))[::-1]]
        found = shutil.which(name, path=":".join([self.env["PATH"], *more]))
        if found is None:
            raise Fault("no %s here" % name, "skipped")
        return found

    def environment(self):
        """CUDA's libraries are in Python's packages or the toolkit; MPICH's are ours. Others, such as libz, are ours only if the machine
        has none: an older one must not stand before Python's."""
        cached = subprocess.run("ldconfig -p || /sbin/ldconfig -p", shell=True, capture_output=True, text=True).stdout
        for path in glob.glob(os.path.join(self.work, "lib-if-missing", "*")):
            if "\t%s " % os.path.basename(path) not in cached:
                shutil.move(path, os.path.join(self.work, "lib"))
        packages = os.path.join(sysconfig.get_path("purelib"), "nvidia")
        folders = [os.path.join(packages, name, "lib") for name in ("cu13", "cublas", "cudnn", "nccl", "cuda_nvrtc", "cuda_runtime")]
        folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64"]
        folders += os.environ.get("LD_LIBRARY_PATH", "").split(":")
        env = {**os.environ, "LD_LIBRARY_PATH": ":".join([os.path.join(self.work, "lib"), *filter(os.path.isdir, folders)]),
               "PATH": os.path.join(self.work, "bin") + ":" + os.environ["PATH"], "DTRAIN_TIMEOUT": "120", "NCCL_SOCKET_IFNAME": "lo",
               "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        return {**env, "DTRAIN_CUDA_MODULE": self.fake} if self.fake else env

    def write(self, line=None):
        """The summary anew, at once: what is known, and what is under way."""
        with self.lock:
            if line:
                self.lines.append(line)
                print(line, flush=True)
            path = os.path.join(self.out, "summary.txt")
            with open(path + ".new", "w") as file:
                file.write("".join("%s\n" % line for line in (*self.lines, *self.under_way.values())))
            os.replace(path + ".new", path)

    def say(self, name, verdict, text):
        self.here.verdict = verdict
        row = " | ".join((self.here.part, name, verdict, " ".join(text.replace("|", "/").split())[:300]))
        if verdict in BAD:
            self.faults.append(row)
        self.write("%4d s | %s" % (time.monotonic() - self.begin, row))

    def row(self, name, limit, function, *args, unit="", least=None, most=None):
        """Reports what function returns within `limit` seconds (0: it takes none): a number, or numbers as median and range, beside its
        limit; yes or no; or text. Nothing that it raises goes further: returns the value, or None."""
        outer, key, value = self.here.deadline, (self.here.part, name), None
        if limit and outer - time.monotonic() < 1:
            return self.say(name, "not begun", "no time was left")
        self.here.deadline = min(outer, time.monotonic() + limit)
        self.under_way[key] = "under way since %d s: %s, %s" % (time.monotonic() - self.begin, *key)
        self.write()
        try:
            value = function(*args)
            verdict, text = self.judged(value, unit, least, most)
        except Exception as why:  # also what damaged files lead to
            verdict, text = verdict_of(why)
        self.here.deadline = outer
        self.under_way.pop(key)
        self.say(name, verdict, text)
        return value

    def judged(self, value, unit, least, most):
        """(verdict, text)."""
        if value is None or isinstance(value, (bool, str)):
            return "FAIL" if value is False else "ok", {True: "yes", False: "no", None: ""}.get(value, value)
        middle = statistics.median(value) if isinstance(value, list) else value
        text = " ".join(filter(None, (shown(middle), unit)))
        text += " (%s to %s)" % (shown(min(value)), shown(max(value))) if isinstance(value, list) else ""
        text += "".join("; %s %s" % (how, shown(limit)) for how, limit in (("at least", least), ("at most", most)) if limit is not None)
        held = (least is None or middle >= least) and (most is None or middle <= most)
        return "fake" if self.fake and unit in FIGURES else "ok" if held else "FAIL", text

    def part(self, name, limit, function):
        """Runs a part; what it raises is a row like others."""
        self.here.part, self.here.deadline = name, min(self.here.deadline, time.monotonic() + limit)
        if self.here.deadline - time.monotonic() < 1:
            return self.say("all of it", "not begun", "no time was left")
        try:
            function(self)
        except Exception as why:
            self.say("the rest", *verdict_of(why))

    def at_once(self, function, calls):
        """Calls it with each of these arguments, side by side."""
        here = dict(self.here.__dict__)

        def go(args):
            self.here.__dict__.update(here)
            function(*args)

        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            list(pool.map(go, calls))

    def call(self, *command, env=(), fine=0):
        """What it printed, if it ends in time with the exit code `fine`; else a Fault says how it ended. Nothing that it began is left."""
        left = self.here.deadline - time.monotonic()
        if left < 0.5:
            raise Fault("no time was left for " + os.path.basename(command[0]), "CUT")
        with self.lock:
            self.n_calls += 1
            mark = "%s-%d." % (self.mark, self.n_calls)
        with tempfile.TemporaryFile(dir=self.work) as log:
            process = subprocess.Popen(command, env={**self.env, **dict(env), **dict([mark.split("=")])}, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, cwd=self.work)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(left)
            code = process.poll()
            self.kill(mark)
            process.poll()  # it is no zombie
            log.seek(0)
            text = log.read(4 << 20).decode(errors="replace").strip()
        with self.lock, open(os.path.join(self.out, "all.log"), "a") as file:
            cut = text if len(text) < 300000 else text[:200000] + "\n[...]\n" + text[-100000:]
            file.write("\n======== %s: %s\n%s\n-------- exit code %s\n" % (self.here.part, " ".join(command), cut, code))
        if code == fine:
            return text
        if code is None:
            raise Fault("after %d s: %s" % (left, gist(text)), "CUT", code, text)
        number = -code if code < 0 else code - 128  # of a signal; a shell and a launcher add 128
        if number in signal.Signals.__members__.values():
            raise Fault("%s: %s" % (signal.Signals(number).name, gist(text)), "CRASH", code, text)
        raise Fault(*((gist(text), "skipped") if code == 77 else ("exit code %d: %s" % (code, gist(text)), "FAIL")), code, text)

    def kill(self, mark):
        """All processes with this mark in their environment: a launcher's ranks have sessions of their own. One that waits in the driver
        for a GPU that hangs cannot be killed, and is left behind after three seconds."""
        found, until = True, time.monotonic() + 3
        while found and time.monotonic() < until:
            found = False
            for path in glob.glob("/proc/[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    with open(path, "rb") as file:
                        ours = ("\0" + mark).encode() in b"\0" + file.read()
                    if ours:
                        os.kill(int(path.split("/")[2]), signal.SIGKILL)
                        found = True

    def configured(self, settings, config="mnist.json"):
        """dtrain's options."""
        path = os.path.join(self.work, "configs", config)
        settings = {"device": "cuda", "log.every_s": 0, "checkpoint.every_epochs": 0, **settings}
        with open(path) as file:
            data = [] if self.fake or '"synthetic"' in file.read() else ["--data", self.data]
        if self.fake:
            small = {key: min(most, int(settings.get(key, most))) for key, most in SMALLEST.items()
                     if not (key.startswith("train.batch") and "train.batch" in settings)}
            settings.update({**small, "data.format": "synthetic", **(SMALL_NET if config == "mnist.json" else {"train.max_steps": 3})})
        return ["--config", path, *data, *(word for key, value in settings.items() for word in ("--set", "%s=%s" % (key, value)))]

    def training(self, settings, config="mnist.json"):
        """Its command; the run folder is the last word."""
        folder = tempfile.mkdtemp(dir=self.work)
        return [self.bin("dtrain"), *self.configured(settings, config), "--run", os.path.join(folder, "run")]

    def train(self, settings, config="mnist.json", launcher=(), env=()):
        """(log, records of the epochs, weights)."""
        command = self.training(settings, config)
        log = self.call(*launcher, *command, env=env)
        with open(os.path.join(command[-1], "metrics.jsonl")) as file:
            epochs = [record for record in map(json.loads, file) if record["type"] == "epoch"]
        weights = tensors(max(glob.glob(os.path.join(command[-1], "checkpoints", "*.safetensors"))))
        shutil.rmtree(command[-1])
        return log, epochs, weights

    def ranks(self, n):
        return [self.bin("mpiexec.hydra"), "-localhost", "127.0.0.1", "-np", str(n)]


def verdict_of(why):
    """(verdict, text) of what was raised."""
    return (why.verdict, str(why)) if isinstance(why, Fault) else ("FAIL", repr(why))


def shown(number):
    return "%.3g" % number if abs(number) < 0.1 else "%d" % number if number % 1 == 0 else "%.2f" % number


def gist(text):
    """The line of an output that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"^dtrain: |error|fail|refused|not found|skipped:", line, re.I)]
    return (telling or lines[-1:] or ["it says nothing"])[0].replace("skipped: ", "")[:250]


def tensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    n = struct.unpack("<Q", raw[:8])[0]
    about = {name: row for name, row in json.loads(raw[8:8 + n]).items() if name != "__metadata__" and row["dtype"] == "F32"}
    return {name: array.array("f", raw[8 + n + row["data_offsets"][0]:8 + n + row["data_offsets"][1]]) for name, row in about.items()}
