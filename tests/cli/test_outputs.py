"""Every option that names a file, with every kind of thing that may have this name: what is written is whole, what is not a file stays
what it is, and a place that takes nothing is told before the work.

usage: DTRAIN=... MPIEXEC=... test_outputs.py"""
import json
import os
import socket
import stat
import subprocess
import threading
import time

import checks
from checks import DTRAIN, SOURCE, check, dtrain, finish, new_folder, sets

CONFIG = f"{SOURCE}/configs/linear.json"
ROOT = os.geteuid() == 0
OLD = b"the old content\n"
skipped = []


def is_page(text):
    return text.startswith(b"<!DOCTYPE html>") and text.endswith(b"</html>\n")


def is_json(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def is_csv(text):
    return text.startswith(b"scaling,ranks,source,") and text.count(b"\n") > 2


def is_script(text):
    return text.startswith(b"#!") and b"srun" in text


SUMS = ["bench", "allreduce", "-b", "8", "-e", "8", "-n", "1", "-w", "0", "-c", "1", "--set", "device=cpu"]
# Name: ranks, the command up to the file's name, whether a text is such a file, whether it replaces one; --force replaces any. The first few see every kind of
# target: they share their way to the file with the others, which see a few.
COMMANDS = {
    "lab reduce": (0, ["lab", "reduce", "--force", "--html"], is_page, True),
    "slurm": (0, ["slurm", "--config", CONFIG, "--script"], is_script, False),
    "bench allreduce": (0, [*SUMS, "--force", "--json"], is_json, True),
    "lab gradtape": (2, ["lab", "gradtape", "--force", "--html"], is_page, True),
    "report": (0, ["report", "RUN", "--force", "--html"], is_page, True),
    "scale, page": (0, ["bench", "scaling", "--config", CONFIG, "--force", "--html"], is_page, True),
    "scale": (0, ["bench", "scaling", "--config", CONFIG, "--force", "--json"], is_json, True),
    "scale, table": (0, ["bench", "scaling", "--config", CONFIG, "--force", "--csv"], is_csv, True),
    "bench model": (0, ["bench", "model", "--config", CONFIG, "--force", "--json"], is_json, True),
}
ALL_KINDS = 3


def run(name, target, **options):
    """The exit code, stdout and stderr of the command with this file's name."""
    ranks, arguments, _, _ = COMMANDS[name]
    done = dtrain(*["run" if a == "RUN" else a for a in arguments], target, ranks=ranks, code=None, text=False, **options)
    return done.returncode, done.stdout, done.stderr.decode()


def read(path):
    """b"" where there is nothing."""
    return checks.read(path, "rb") if os.path.exists(path) else b""


def write(path, mode=0o644):
    checks.write(path, OLD)
    os.chmod(path, mode)


def kind_of(path):
    """What it is, apart from its size and times."""
    if not os.path.lexists(path):
        return 0, 0, 0, 0
    info = os.lstat(path)
    return stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode), info.st_rdev, info.st_uid


def told(name, what, got, code, text):
    """One line of error, with nothing done before it if the place is to blame."""
    done, out, err = got
    check(done == code, f"{name}, {what}: exit code {done}, not {code}: {err}")
    errors = [line for line in err.splitlines() if line.startswith("dtrain: ")]
    check(len(errors) == 1 and text in errors[0], f"{name}, {what}: not one line with {text!r}: {err}")
    check(code != 73 or not out, f"{name}, {what}: it worked before it looked: {out}")


def leaves_nothing(name, what, folder):
    left = [entry for entry in os.listdir(folder) if entry.startswith(".tmp-")]
    check(not left, f"{name}, {what}: temporary files are left: {left}")


# ---- files


def absent(name, is_whole, _):
    code, _, err = run(name, "new")
    check(code == 0 and is_whole(read("new")), f"{name}, absent: {code} {err}")
    check(kind_of("new")[1] == 0o640, f"{name}, absent: mode {kind_of('new')}")


def long_name(name, is_whole, _):
    for target in ("n" * 255, "x" + "é" * 127):
        code, _, err = run(name, target)
        check(code == 0 and is_whole(read(target)), f"{name}, a name of 255 bytes: {code} {err}")
    told(name, "a name of 256 bytes", run(name, "n" * 256), 73, "File name too long")


def regular(name, is_whole, replaces):
    write("private", 0o600)
    if ROOT:
        os.chown("private", 1, 2)
    before, got = kind_of("private"), run(name, "private")
    if replaces:
        check(got[0] == 0 and is_whole(read("private")), f"{name}, a private file: {got}")
    else:
        check(got[0] == 73 and "exists already" in got[2] and read("private") == OLD, f"{name}, a file that is there: {got}")
    check(kind_of("private") == before, f"{name}, a private file: is another: {kind_of('private')}, not {before}")


def link(name, is_whole, replaces):
    os.mkdir("below")
    write("below/target", 0o600)
    os.symlink("below/target", "link")
    os.symlink(os.path.abspath("link"), "chain")
    for target in ("link", "chain"):
        got = run(name, target)
        check(got[0] == (0 if replaces else 73) and is_whole(read("below/target")) == replaces, f"{name}, {target}: {got}")
        check(os.path.islink("link") and os.path.islink("chain"), f"{name}, {target}: is gone")
        check(stat.S_IMODE(os.stat("below/target").st_mode) == 0o600, f"{name}, {target}: the mode")
        write("below/target", 0o600)


def dangling(name, is_whole, _):
    os.mkdir("empty")
    os.symlink("empty/target", "dangling")
    code, _, err = run(name, "dangling")
    check(code == 0 and os.path.islink("dangling") and is_whole(read("empty/target")), f"{name}, a dangling link: {code} {err}")
    os.symlink("round", "round")
    told(name, "a link to itself", run(name, "round"), 73, "round: Too many levels of symbolic links")


# ---- what is no file


def fifo(name, is_whole, _):
    os.mkfifo("fifo")
    before, text = kind_of("fifo"), []
    reader = threading.Thread(target=lambda: text.append(read("fifo")), daemon=True)
    reader.start()
    code, _, err = run(name, "fifo")
    reader.join(20)
    check(code == 0 and len(text) == 1 and is_whole(text[0]), f"{name}, a pipe: {code} {err}")
    check(kind_of("fifo") == before, f"{name}, a pipe: is none any more")


def deaf_fifo(name, _, __):
    os.mkfifo("deaf")
    before, begin = kind_of("deaf"), time.monotonic()
    told(name, "a pipe that nobody reads", run(name, "deaf"), 74, "deaf: nobody reads from it")
    check(kind_of("deaf") == before and time.monotonic() - begin < 30, f"{name}, a pipe that nobody reads: is none any more")


def has_devices():
    """Of our own, null and full: a program that replaces what it should write to must not find those of the machine."""
    try:
        os.mknod("null", 0o622 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod("full", 0o622 | stat.S_IFCHR, os.makedev(1, 7))
        os.close(os.open("null", os.O_WRONLY))
    except OSError:
        skipped.append("devices, which need root")
        return False
    return True


def device(name, _, __):
    if not has_devices():
        return
    before = kind_of("null"), kind_of("full")
    code, _, err = run(name, "null")
    check(code == 0, f"{name}, a device: {code} {err}")
    told(name, "a full device", run(name, "full"), 74, "full: cannot be written: No space left on device")
    check((kind_of("null"), kind_of("full")) == before, f"{name}, a device: is none any more")


def standard_output(name, is_whole, _):
    """Behind what was printed, whether that goes into a pipe, a file or a socket."""
    if COMMANDS[name][0] > 0:
        return  # mpirun forwards it
    os.symlink("/proc/self/fd/1", "stdout")  # as /dev/stdout, which is not put at risk
    plain = run(name, "plain")[1]
    code, out, err = run(name, "stdout")
    check(code == 0, f"{name}, standard output: {code} {err}")
    with open("out", "wb") as file:
        file.write(OLD)
        file.flush()
        code, _, err = run(name, "stdout", stdout=file)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        run(name, "stdout", stdout=theirs.fileno())
        theirs.close()
        received = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    check(code == 0 and read("out").startswith(OLD), f"{name}, standard output into a file: what was there is gone: {code} {err}")
    for what, text in (("pipe", out), ("file", read("out")[len(OLD):]), ("socket", received)):
        begin = text.rfind(read("plain")[:10])
        check(begin >= 0 and is_whole(text[begin:]) and begin >= len(plain) // 2, f"{name}, standard output into a {what}: {text[:2000]}")


def no_place(name, _, __):
    os.mkdir("folder")
    os.mkfifo("not-a-folder")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    told(name, "a folder", run(name, "folder"), 73, "folder: is a directory (name a file)")
    told(name, "a socket", run(name, "socket"), 73, "socket: is a socket (name a file)")
    told(name, "no such folder", run(name, "none/x"), 73, "none/: No such file or directory")
    told(name, "a file as a folder", run(name, "not-a-folder/x"), 73, "not-a-folder/x: Not a directory")
    told(name, "no name", run(name, "none/"), 64, "none/: no name of a file (add one)")
    server.close()


def full_disk(name, _, replaces):
    """A file system with one page left, and then one that is read-only."""
    if not ROOT or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        skipped.append("full disks, which need root and unshare")
        return
    os.mkdir("small")
    script = ('mount -t tmpfs -o size=4k,mode=777 test small && printf old >small/there && "$@" "small/$T"; echo $?; cat small/there; '
              'ls -A small; mount -o remount,ro small && "$@" "small/$T"; echo $?')
    for target in ("new", "there") if replaces else ("new",):
        _, arguments, _, _ = COMMANDS[name]
        done = checks.run("unshare", "-m", "bash", "-c", script, "-", DTRAIN, *arguments, env={"T": target})
        errors = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
        lines = done.stdout.splitlines()
        check("74" in lines and "oldthere" in lines and "new" not in lines and len(errors) == 2, f"{name}, a full disk: {done}")
        check(lines[-1:] == ["73"] and "Read-only file system" in errors[-1], f"{name}, a read-only disk: {done}")


FILES = (absent, regular, link, fifo, device, no_place)
KINDS = (*FILES, dangling, long_name, deaf_fifo, standard_output)


def prepare_run():
    """A short training, for the commands that want one."""
    dtrain("--config", CONFIG, "--run", "run", *sets("train.max_steps=1", "checkpoint.best=test_loss"))


def try_one(name, kind):
    _, _, is_whole, replaces = COMMANDS[name]
    folder = f"{name} {kind.__name__}".replace(" ", "-").replace(",", "")
    os.mkdir(folder)
    os.symlink("../run", f"{folder}/run")
    os.chdir(folder)
    kind(name, is_whole, replaces)
    leaves_nothing(name, kind.__name__, ".")
    os.chdir("..")


def several():
    """One that cannot be written does not keep another from being written."""
    if has_devices():
        done = dtrain("bench", "scaling", "--config", CONFIG, "--json", "full", "--html", "page.html", code=74)
        check("full: cannot be written" in done.stderr and is_page(read("page.html")), f"several files: {done}")


os.umask(0o027)
new_folder()
checks.write("slurm/sbatch", "#!/bin/sh\n")  # any script is right: this machine's own Slurm may have no cluster
os.chmod("slurm/sbatch", 0o700)
os.environ["PATH"] = f"{os.getcwd()}/slurm:{os.environ['PATH']}"
prepare_run()
for number, command in enumerate(COMMANDS):
    for kind_of_file in KINDS if number < ALL_KINDS else FILES[:3]:
        try_one(command, kind_of_file)
for command in ("lab reduce", "slurm"):
    try_one(command, full_disk)
several()
for missing in sorted(set(skipped)):
    print("not checked:", missing)
finish()
