"""The system calls of the program, as strace sees them: it starts no program, has no listening socket, and writes only what SECURITY.md
says it writes. Calls within MPI and UCX are theirs: a call is of the innermost library that is not the C library.

usage: DTRAIN=... MPIEXEC=... test_system_calls.py"""
import glob
import os
import re
import tempfile

from checks import DTRAIN, SOURCE, check, finish, new_folder, run, sets, skip

CONFIG = f"{SOURCE}/configs/synthetic.json"
STARTS = {"execve", "execveat"}
LISTENS = {"listen", "accept", "accept4"}
CHANGES = {"creat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink",
           "symlinkat", "mknod", "mknodat", "truncate", "chmod", "fchmod", "fchmodat", "chown", "fchown", "fchownat", "lchown"}
OPENS = {"open", "openat", "openat2"}
OTHERS = re.compile(r"/(libmpi|libuc[a-z]|libpmi|libhwloc|libfabric|libibverbs|librdmacm|libnuma)[^/]*$")
# Not files: what it starts with, memory that the ranks of a host share, and the pipes to the launcher.
NO_FILE = re.compile(r"^(pipe:|socket:|anon_inode:|/memfd:|/dev/(null|tty|pts)\b)")
CALL = re.compile(r"^(?:\[pid +\d+\] )?(\w+)\((.*)\) += (-?\d+)(?:<(.*?)>(?:\(deleted\))?)?(?: |$)")
WORK = ["train.epochs=1", "tensorboard=true", "trace.steps=1:4", "checkpoint.every_steps=16", "checkpoint.best=\"test_loss\""]


def calls(path):
    """(name, arguments, result, file of the result, libraries, innermost first) of each call of a trace."""
    found = None
    with open(path, errors="replace") as file:
        for line in file:
            call = CALL.match(line)
            if line.startswith(" > "):
                found[4].append(line[3:].split("(")[0])
            elif call:
                if found:
                    yield found
                found = (call[1], call[2], int(call[3]), call[4] or "", [])
    if found:
        yield found


def is_ours(libraries):
    return not any(OTHERS.search(library) for library in libraries)


def names(arguments):
    """The paths of a call, absolute: each stands behind the folder that it is relative to, or behind none."""
    for folder, path in re.findall(r'(?:<([^>]*)>, )?"([^"]*)"', arguments):
        yield os.path.normpath(os.path.join(folder or os.getcwd(), path))
    if '"' not in arguments:
        yield re.search(r"<([^>]*)>", arguments)[1]


def wrong(call, may_write):
    """What our call must not do, or None."""
    name, arguments, result, opened, _ = call
    paths = []
    if name in CHANGES:
        paths = list(names(arguments))
    elif name in OPENS and re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)", arguments) and not NO_FILE.match(opened):
        paths = [opened] if result >= 0 else list(names(arguments))
    outside = [path for path in paths if not any(path == top or path.startswith(top + "/") for top in may_write)]
    if name in STARTS | LISTENS or outside:
        return f"{name}({arguments}) = {result} {' '.join(outside)}"
    return None


def trace(folder, n_ranks, arguments):
    """The traces of all processes of a run, one file a thread."""
    prefix = os.path.join(folder, "trace")
    # UCX patches the C library's mmap, and strace then finds no stack through what lies near it.
    run("strace", "-ff", "-k", "-qq", "-y", "-s", "4096", "-o", prefix, "-e", "trace=" + ",".join(sorted(STARTS | LISTENS | CHANGES | OPENS)),
        DTRAIN, *arguments, ranks=n_ranks, code=0, env={"UCX_MEM_MMAP_HOOK_MODE": "none"})
    return glob.glob(prefix + ".*")


def examine(n_ranks, may_write, *arguments):
    """How many of our calls changed a file, and how many sockets MPI listens at."""
    with tempfile.TemporaryDirectory() as folder:
        found = [call for path in trace(folder, n_ranks, arguments) for call in calls(path)]
    ours = [call for call in found if is_ours(call[4])]
    failures = [line for line in (wrong(call, may_write) for call in ours) if line]
    launches = [line for line in failures if line.startswith(f'execve("{DTRAIN}"')]
    for line in [line for line in failures if line not in launches] + launches[n_ranks:]:
        check(False, f"{arguments[0]}: {line}")
    return sum(call[0] in CHANGES for call in ours), sum(call[0] == "listen" for call in found)


try:
    tried = run("strace", "-k", "-o", "/dev/null", "true")
except FileNotFoundError:
    skip("no strace (apt-get install strace)")
if tried.returncode != 0:
    skip("strace may not trace here: " + tried.stderr.strip())
new_folder()
os.mkdir("pages")
RUN, PAGES = os.path.abspath("run"), os.path.abspath("pages")
TRAIN = ["train", "--config", CONFIG, "--run", RUN, *sets(*WORK)]
rows = [examine(2, [RUN], *TRAIN),
        examine(2, [RUN], *TRAIN, *sets("train.epochs=2"), "--resume"),
        examine(1, [RUN], "report", RUN),
        examine(1, [], "report", RUN, RUN),
        examine(1, [], "eval", RUN),
        examine(1, [PAGES], "lab", "allreduce", "--html", "pages/page.html")]
check(0 not in rows[0], "the traces are not understood: nothing changes a file, or MPI listens nowhere")
check(sorted(os.listdir(".")) == ["pages", "run"], f"files in the working folder: {os.listdir('.')}")
print(sum(row[0] for row in rows), "calls changed files")
finish()
