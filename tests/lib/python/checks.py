"""What the tests in Python share: checks that are counted, the program as users run it, and the files that it leaves. It needs the standard
library only.

They want $DTRAIN, the program, and $MPIEXEC, the launcher, and end with `finish`."""
import atexit
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

DTRAIN, MPIEXEC = os.path.abspath(os.environ["DTRAIN"]), os.environ["MPIEXEC"]
SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
os.environ["LC_ALL"] = "C.UTF-8"
os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPICH keeps memory until the process ends
failures = []


def check(holds, *about):
    """Counts a failure unless it holds; the test continues."""
    if not holds:
        failures.append(" ".join(map(str, about)))
        print("FAILED:", failures[-1], flush=True)


def skip(why):
    """Ends the test as skipped, or as failed if a check has failed before."""
    print("skipped:", why)
    sys.exit(1 if failures else 77)


def need(*names):
    """Skips the test where one of these packages is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        skip(f"no Python package {', '.join(missing)} (pip install {' '.join(missing)}; tests/requirements.txt)")


def finish():
    print(f"{len(failures)} checks failed" if failures else "every check holds")
    sys.exit(bool(failures))


def new_folder():
    """The working folder is an empty one from now on, and removed at the end."""
    folder = tempfile.mkdtemp(prefix="dtrain-test.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chdir(folder)


def script(name):
    """The program scripts/NAME as a module, which may import others of that folder."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, f"{SOURCE}/scripts")
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), f"{SOURCE}/scripts/{name}")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


# ---- the program


def run(*command, ranks=0, code=None, env=(), text=True, **options):
    """What subprocess.run returns; ranks: under the launcher, 0: without; code: the exit code it must have; text: False: bytes."""
    command = [*(MPIEXEC, "-n", str(ranks)) * (ranks > 0), *map(str, command)]
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(command, timeout=300, check=False, env={**os.environ, **dict(env)}, encoding="utf-8" if text else None, **options)
    check(code in (None, done.returncode), f"{' '.join(command)}: exit code {done.returncode}, not {code}: {done.stderr}")
    return done


def dtrain(*arguments, **options):
    """As `run`; it must work, unless another exit code is given, or None for any."""
    return run(DTRAIN, *arguments, **{"code": 0, **options})


def sets(*settings):
    """Arguments: --set for each."""
    return [word for setting in settings for word in ("--set", setting)]


def refused(code, text, *arguments, program=DTRAIN, **options):
    """It ends with this code, this text in its one line of error, and nothing on stdout."""
    done = run(program, *arguments, code=code, **options)
    line = done.stderr.removesuffix("\n")
    check(line.startswith("dtrain: ") and text in line and "\n" not in line and not done.stdout,
          f"{arguments}: {text!r} is not all of {done}")


def parts(result, kind, title=None):
    """Those of a document of this type and title, in their order; of a table, its rows are in "rows"."""
    return [part for part in result["parts"] if part["type"] == kind and (title is None or part.get("title") == title)]


# ---- files


def read(path, mode="r"):
    with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
        return file.read()


def write(path, content):
    """Text or bytes, in a folder that is made if need be."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def read_json(path):
    return json.loads(read(path))


def write_json(path, value):
    write(path, json.dumps(value))


def records(run_folder, kind):
    """Those of metrics.jsonl, in their order."""
    return [record for record in map(json.loads, read(f"{run_folder}/metrics.jsonl").splitlines()) if record["type"] == kind]


def summary(run_folder):
    return read_json(f"{run_folder}/summary.json")


def checkpoint_of(run_folder, step):
    return os.path.join(run_folder, "checkpoints", f"step-{step:012d}.safetensors")
