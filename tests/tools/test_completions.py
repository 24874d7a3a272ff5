"""What the TAB key makes of a command line of dtrain, in real shells on a terminal of their own: bash and zsh are typed to, fish is asked.
A shell that is not installed is left out; without any of them the test is skipped.

usage: test_completions.py FOLDER_OF_COMPLETIONS DTRAIN"""
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time

from checks import check, finish, new_folder, skip, write

COMPLETIONS, PROGRAM = map(os.path.abspath, sys.argv[1:])
LIMIT = 120  # seconds until a shell that says nothing counts as stuck
CASES = (  # what is typed, and the arguments that dtrain then has
    ("tr\t", ["train"]),
    ("exp\tru\t", ["export", "runs/"]),
    ("bench mo\t", ["bench", "model"]),
    ("accept --ht\t", ["accept", "--html"]),
    ("help lab pip\t", ["help", "lab", "pipeline"]),
    ("--con\tconf\t", ["--config", "conf one.json"]),
    ("--data fol\t", ["--data", "folder/"]),
    ("eval --run\t", ["eval", "--run"]),  # eval has no such option
    ("--set train.optimizer.ty\tsg\t", ["--set", "train.optimizer.type=sgd"]),
    ("plan --set=distributed.overlap=f\t", ["plan", "--set=distributed.overlap=false"]),
    ("predict --invert ye\t", ["predict", "--invert", "yes"]),
    ("--inject jit\t", ["--inject", "jitter"]),
    ("slurm --partition halving\t", ["slurm", "--partition", "halving"]),  # a name, but not of an algorithm
    ("lab allreduce --algorithm halving\t", ["lab", "allreduce", "--algorithm", "halving_doubling"]),
)
LAUNCHED = ("mpirun -np 4 dtrain tr\t", ["train"])  # in bash alone
PROMPT = "ready> "
SHELLS = {  # how it starts, and what makes it ready
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; . '%s/dtrain.bash'" % COMPLETIONS),
    "zsh": (["zsh", "-f", "-i"], "fpath=('%s' $fpath); autoload -Uz compinit; compinit -u -D; unsetopt zle_bracketed_paste 2>/dev/null; "
                                 "unset zle_bracketed_paste; unsetopt prompt_sp" % COMPLETIONS),
}
DTRAIN = "mpirun() { shift 2; \"$@\"; }; dtrain() { if [ \"$1\" = __complete ]; then '%s' \"$@\"; else printf '<%%s>' \"$@\"; echo; fi; }" % PROGRAM


class Terminal:
    def __init__(self, command, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            env = dict(os.environ, TERM="dumb", PS1=PROMPT, LC_ALL="C.UTF-8", HOME=folder)
            os.execvpe(command[0], command, env)
        self.text = ""

    def until(self, what):
        """What comes up to `what`."""
        end = time.monotonic() + LIMIT
        while what not in self.text:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError("%r did not come, but %r" % (what, self.text))
            self.text += os.read(self.fd, 4096).decode(errors="replace")
        before, self.text = self.text.split(what, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def cases(shell):
    return (*CASES, LAUNCHED) if shell == "bash" else CASES


def typed(shell, folder):
    """The arguments that dtrain has in each case."""
    command, setup = SHELLS[shell]
    terminal = Terminal(command, folder)
    try:
        terminal.until(PROMPT)
        for line in ("PS1='%s'" % PROMPT, DTRAIN, setup):
            terminal.type("%s; echo se''t\n" % line)
            terminal.until("set\r\n")
            terminal.until(PROMPT)
        for line, _ in cases(shell):
            terminal.type(("" if line.startswith("mpirun") else "dtrain ") + line + "\n")
            terminal.until("<")
            words = "<" + terminal.until("\r\n")
            yield words.strip("<>").split("><")
            terminal.until(PROMPT)
    finally:
        terminal.close()


def asked(folder):
    """The same from fish, which completes one word after another as it is asked."""
    env = dict(os.environ, PATH=os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"])
    for line, _ in CASES:
        words = ""
        for piece in line.split("\t")[:-1]:
            words += piece
            question = "source '%s/dtrain.fish'; complete -C \"dtrain %s\"" % (COMPLETIONS, words)
            done = subprocess.run(["fish", "--no-config", "-c", question], cwd=folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=LIMIT, env=env)
            found = [row.split("\t")[0] for row in done.stdout.splitlines()]
            if len(found) == 1:
                head, word = words.rpartition(" ")[::2]
                words = head + " " * (head != "") + (shlex.quote(found[0]) if found[0].startswith(word) else word)
                words += "" if found[0].endswith(("=", "/")) else " "
        yield shlex.split(words)


def plain(words):
    """Without what shells do each in their way: a slash behind a folder, an equals sign behind an option."""
    return [part.rstrip("/") for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]


new_folder()
for name in ("runs", "folder"):
    os.mkdir(name)
for name in ("conf one.json", "fold"):
    write(name, "")
SHELLS_HERE = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]
for shell in SHELLS_HERE:
    for (line, wanted), got in zip(cases(shell), asked(os.getcwd()) if shell == "fish" else typed(shell, os.getcwd())):
        check(plain(got) == plain(wanted), f"{shell}: {line!r} became {got!r} instead of {wanted!r}")
if not SHELLS_HERE:
    skip("neither bash nor zsh nor fish is installed")
print(f"{len(CASES)} lines in {', '.join(SHELLS_HERE)}")
finish()
