"""Nobody reads what the program prints: a pipe, a socket or a terminal is full. Training goes on, every end comes in time, results wait for
their reader, and a reader that is only slow misses nothing but old lines.

usage: DTRAIN=... MPIEXEC=... test_unread_output.py"""
import errno
import fcntl
import os
import pty
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time

import checks
from checks import DTRAIN, MPIEXEC, check, finish, new_folder

SOON = 30  # far more than the limits that are at work, for a machine that is busy
CONFIG = {"data": {"format": "synthetic", "train_samples": 64, "test_samples": 16},
          "model": {"input": [1, 4, 4], "layers": [{"type": "flatten"}, {"type": "dense", "units": 4}]},
          "train": {"epochs": 1000000, "batch": {"global": 32}}, "checkpoint": {"every_epochs": 1000000}, "report": False, "threads": 1}
FOREVER = ["--config", "../c.json", "--run", "r"]
SHORT = [*FOREVER, "--set", "train.epochs=2"]


def full(writer):
    """Fills it; a pipe by another file description where that can be, so that the program's own stays blocking."""
    if isinstance(writer, socket.socket):
        writer.setblocking(False)
        write = lambda: writer.send(b"." * 4096)
    else:
        again = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
        write = lambda: os.write(again, b"." * 4095 + b"\n")
    try:
        while write():
            pass
    except BlockingIOError:
        pass
    if isinstance(writer, socket.socket):
        writer.setblocking(True)


def pipe():
    reader, writer = os.pipe()
    full(writer)
    return reader, writer, lambda: None


def socket_pair():
    reader, writer = socket.socketpair()
    full(writer)
    return reader.detach(), writer.detach(), lambda: None


def terminal():
    """As after Ctrl-S; the last value lets it go on, as Ctrl-Q."""
    reader, writer = pty.openpty()
    termios.tcflow(writer, termios.TCOOFF)
    kept = os.dup(writer)

    def go_on():
        termios.tcflow(kept, termios.TCOON)
        os.close(kept)
    return reader, writer, go_on


OUTPUTS = {"a pipe": pipe, "a socket": socket_pair, "a stopped terminal": terminal}


class Run:
    """The program in a folder of its own."""

    def __init__(self, arguments, ranks=0, **options):
        self.folder = tempfile.mkdtemp(dir=".")
        launcher = [MPIEXEC, "-n", str(ranks)] * (ranks > 0)
        self.process = subprocess.Popen([*launcher, DTRAIN, *arguments], stdin=subprocess.DEVNULL, cwd=self.folder,
                                        env={**os.environ, "DTRAIN_TIMEOUT": "2"}, **options)

    def code(self):
        """Its exit code; or None, and it is killed."""
        try:
            return self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def epochs(self):
        path = f"{self.folder}/r/metrics.csv"
        return checks.read(path).count("\n") if os.path.exists(path) else 0

    def trains_on(self):
        """Whether so many more epochs end that their lines fill any output and all that the program keeps."""
        until, wanted = time.monotonic() + SOON, self.epochs() + 1500
        while self.epochs() < wanted and time.monotonic() < until and self.process.poll() is None:
            time.sleep(0.1)
        return self.epochs() >= wanted


def read_all(reader, seconds=SOON):
    """Until the last writer has ended."""
    text, until = b"", time.monotonic() + seconds
    os.set_blocking(reader, False)
    while time.monotonic() < until:
        try:
            piece = os.read(reader, 1 << 16)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        except OSError as error:
            check(error.errno == errno.EIO, error)
            break
        if not piece:
            break
        text += piece
    return text


def training(name, ranks):
    """Both outputs are blocked, as by 2>&1; TERM saves; the last lines are there for whoever reads in the end."""
    reader, writer, go_on = OUTPUTS[name]()
    run = Run(FOREVER, ranks, stdout=writer, stderr=writer)
    check(run.trains_on(), f"{name}, {ranks} ranks: training stops after {run.epochs()} epochs")
    check(fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK == 0, f"{name}: the descriptor has become non-blocking")
    os.close(writer)
    run.process.send_signal(signal.SIGTERM)
    go_on()
    text = read_all(reader)
    check(run.code() == 75 and os.path.exists(f"{run.folder}/r/checkpoints"), f"{name}, {ranks} ranks: TERM ends it with {run.process.returncode}")
    check(b"some lines are missing here" in text and b"saved " in text, f"{name}, {ranks} ranks: it says {text[-400:]}")


def ends(name, ranks, arguments, code):
    """It ends though nobody ever reads."""
    reader, writer, _ = OUTPUTS[name]()
    run = Run(arguments, ranks, stdout=writer, stderr=writer)
    os.close(writer)
    if code == 75:
        check(run.trains_on(), f"{name}: training stops")
        run.process.send_signal(signal.SIGTERM)
    check(run.code() == code, f"{name}, {ranks} ranks, {arguments}: exit code {run.process.returncode}, not {code}")
    os.close(reader)


def results(name, ranks, reads):
    """Of a run that is done: they wait on stdout; a reader gets them, or TERM ends the wait."""
    reader, writer, go_on = OUTPUTS[name]()
    with tempfile.NamedTemporaryFile("w+") as log:
        run = Run(SHORT, ranks, stdout=writer, stderr=log)
        os.close(writer)
        until = time.monotonic() + SOON
        while "hash of the weights" not in checks.read(log.name) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(4)  # twice DTRAIN_TIMEOUT
        check(run.process.poll() is None, f"{name}, {ranks} ranks: it does not wait, and ends with {run.process.returncode}")
        if reads:
            go_on()
            check(b"test accuracy" in read_all(reader), f"{name}, {ranks} ranks: the result is lost")
        else:
            run.process.send_signal(signal.SIGTERM)
        check(run.code() == (0 if reads else 74), f"{name}, {ranks} ranks, read: {reads}: exit code {run.process.returncode}")
        check("no sign of life" not in checks.read(log.name), checks.read(log.name))


def error(name):
    """A reader that is slow by half a second gets the line of an error."""
    reader, writer, go_on = OUTPUTS[name]()
    run = Run(["--config", "missing.json"], stderr=writer)
    os.close(writer)
    time.sleep(0.5)
    go_on()
    check(b"dtrain: missing.json" in read_all(reader), f"{name}: the line of the error is lost")
    check(run.code() == 66, f"{name}: exit code {run.process.returncode}")


new_folder()
checks.write_json("c.json", CONFIG)
STALLS = [*FOREVER, "--inject", "stall:rank=0,step=3"]
CASES = [(training, "a pipe", 0), (training, "a socket", 0), (training, "a stopped terminal", 0), (training, "a pipe", 2),
         (ends, "a pipe", 0, FOREVER, 75), (ends, "a pipe", 2, FOREVER, 75), (ends, "a stopped terminal", 0, STALLS, 76),
         (ends, "a socket", 0, STALLS, 76), (ends, "a pipe", 2, [*FOREVER, "--inject", "nan:rank=1,step=3"], 80),
         (results, "a pipe", 0, True), (results, "a stopped terminal", 0, False), (results, "a pipe", 2, True),
         *((error, name) for name in OUTPUTS)]
threads = [threading.Thread(target=case[0], args=case[1:]) for case in CASES]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
finish()
