"""Programs on a terminal of their own."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

LIMIT_S = 120


class Terminal:
    """A command whose files are a terminal, but for those that the options of subprocess.Popen name."""

    def __init__(self, *command, columns=80, lines=24, **options):
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before, self.same, self.bytes = termios.tcgetattr(self.slave), None, b""
        files = dict.fromkeys(("stdin", "stdout", "stderr"), self.slave)
        self.process = subprocess.Popen(command, start_new_session=True, **{**files, **options})

    def resize(self, columns, lines=24):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def read(self, seconds=0.05):
        """Whether something came within that time."""
        there = bool(select.select([self.master], [], [], seconds)[0])
        self.bytes += os.read(self.master, 65536) if there else b""
        return there

    @property
    def text(self):
        return self.bytes.decode(errors="replace")

    def wait_for(self, pattern):
        """Whether the text has it, in time."""
        end = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text) and time.monotonic() < end:
            self.read()
        return re.search(pattern, self.text) is not None

    def end(self):
        """The exit code when all is read; then `same` says whether the terminal is as it was."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.process.kill()
        while self.read(0):
            pass
        self.same = termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return self.process.wait()
