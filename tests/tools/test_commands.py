#!/usr/bin/env python3
"""Every command that README, CONTRIBUTING, docs/, the man page and --help show works by copy and paste.

They run in a copy of the sources, in the order of each page, with the program on the PATH as the README has it. data/mnist has as
many images as MNIST, so that steps and the names of checkpoints are as on the page; they are made here, and they and the copy's
models are small. Nothing else is changed but what EXCEPTIONS says, and each of its rows must be of use.

A command is a line of a block marked `sh`, of the man page's examples or of an "Examples" of the help, and what stands `so` in the
text if it begins with a program and has options. A block marked `json` behind "save it as" a name is that file. What has
a word in capitals, such as FILE, is a form and not a command. The output that the README shows below a command is what it prints.

usage: test_commands.py SOURCE_DIR BUILD_DIR MPIEXEC pages|program: those of the Markdown pages, or of the man page and --help
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import shown
from samples import write_idx

SOURCE, BUILD, MPIEXEC = map(os.path.abspath, sys.argv[1:4])
PART = sys.argv[4]
EXCEPTIONS = (  # what one of the commands between && has, what it becomes or None for nothing, and why
    (r"^\./scripts/quickstart$", None, "installs packages and builds: test_quickstart.sh runs it"),
    (r"^\./scripts/test( .*)?$", None, "it is what runs this test"),
    (r"^apt-get .*", None, "needs root"),
    (r"^dtrain slurm ", None, "asks Slurm, where there is an sbatch"),
    (r"^(sbatch|srun) .*", None, "needs Slurm: test_scripts.sh runs the batch script on a double"),
    (r"^python3 docs/lessons_figures.py .*", None, "test_lesson_figures runs it"),
    (r"^scripts/bench-cpu .*", None, "takes minutes: test_bench_cpu.py runs it"),
    (r"^cmake --build (?!--preset debug).*", r"\g<0> -- -n", "takes minutes: the build says what it would do"),
    (r"^cmake --build --preset debug$", r"\g<0> --target CMakeFiles/dt_cpu_baseline.dir/cpu/kernels/elementwise.c.o",
     "takes minutes: one of the files that do not compile without an optimizer"),
    (r"^ctest .*", r"\g<0> -N", "takes minutes: only lists the tests"),
    (r"^cmake --install build/release$", "cmake --install '%s' --prefix installed" % BUILD, "needs root, and a build of all: the tests'"),
    (r"^build/checked/tests/", "%s/tests/" % BUILD, "the tests' build has it"),
    (r"--count 10000", "--count 100", "takes a minute"),
    (r"device=cuda", "device=auto", "needs a GPU for every rank"),
    (r"precision=bf16", "precision=f32", "needs GPUs, or AMX"),
    (r" (IMAGE|digit)\.png$", " tests/corpus/png/rgb", "is the reader's own"),
    (r"^dtrain report runs/night runs/day( --html .*)?$", r"dtrain report runs/night runs/night\1", "is the reader's own"),
    (r"-e 64M", "-e 64K", "takes long"),
    (r"bench allreduce$", r"\g<0> -e 64K", "takes long"),
)
SIDE = 8  # of an image
PROGRAMS = r"(mpirun|srun|sbatch|dtrain|cmake|ctest|python3|apt-get|(\./)?(scripts|build)/\S+)"
FORM = r"(^|[\s=])[A-Z]+([\s.]|$)|\.\.\.|\["


def joined(lines):
    """Commands without comments; a backslash at the end continues a line."""
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line for line in (re.sub(r"(^|\s+)#.*", "", line).strip() for line in text.splitlines()) if line]


def of_markdown(path):
    with open(path) as file:
        pieces = re.split(r"^```(.*)\n((?:.*\n)*?)```$", file.read(), flags=re.M)
    for prose, kind, block in zip(pieces[::3], [*pieces[1::3], ""], [*pieces[2::3], ""]):
        for span in re.findall(r"`([^`]+)`", prose):
            span = " ".join(span.split())
            if re.match(PROGRAMS + " (.* )?-|(python3|sbatch|apt-get) ", span) and not re.search(FORM, span):
                yield span
        yield from joined(block.splitlines()) if kind == "sh" else ()
        saved = re.search(r"save it as\s+`([a-z]+\.json)`:\s*$", prose)
        if kind == "json" and saved:
            yield "cat >%s <<'END'\n%sEND" % (saved[1], block)


def of_program():
    """(where, commands): the examples of the man page, and of each command's help; each command once."""
    tables = json.loads(subprocess.run([os.path.join(BUILD, "dtrain"), "help", "--json"], check=True, capture_output=True).stdout)
    overview = subprocess.run([os.path.join(BUILD, "dtrain"), "--help"], check=True, capture_output=True, text=True).stdout
    in_help = re.findall(r"^Examples?:?\n((?: +.*\n)+)", overview, re.M) + [command["examples"] for command in tables["commands"]]
    for where, texts in ("dtrain.1", [row["name"] for row in tables["examples"]]), ("--help", in_help):
        yield where, list(dict.fromkeys(command for text in texts for command in joined(text.splitlines())))


def excepted(command, used):
    """What runs in its place."""
    parts = []
    for part in command.split(" && "):
        for i, (pattern, becomes, _) in enumerate(EXCEPTIONS):
            if part and re.search(pattern, part):
                used.add(i)
                part = "" if becomes is None else re.sub(pattern, becomes, part)
        parts.append(part)
    return " && ".join(part for part in parts if part)


def write_images(folder, split, n):
    """Ten images that can be told apart, again and again."""
    images = bytes(255 * ((x + y * SIDE) % 11 == k) for k in range(10) for y in range(SIDE) for x in range(SIDE))
    write_idx(folder, split, (SIDE, SIDE), images * (n // 10), bytes(range(10)) * (n // 10))


def make_small(path):
    with open(path) as file:
        config = json.load(file)
    config["model"]["input"] = [1, SIDE, SIDE]
    for layer in config["model"]["layers"][:-1]:
        layer.update({key: 2 for key in ("filters", "units", "kernel") if key in layer})
    with open(path, "w") as file:
        json.dump(config, file)


def prepare(top):
    """The copy after the README's first command."""
    shutil.copytree(SOURCE, top, symlinks=True, ignore=lambda folder, names: [
        name for name in names if folder == SOURCE and (name.startswith("build") or name in (".git", "runs"))])
    for path in glob.glob(os.path.join(top, "configs", "mnist*.json")):
        make_small(path)
    data, build, bin = (os.path.join(top, *parts) for parts in (("data", "mnist"), ("build", "release"), ("bin",)))
    shutil.rmtree(data, ignore_errors=True)
    for folder in (data, build, bin):
        os.makedirs(folder)
    write_images(data, "train", 60000)
    write_images(data, "t10k", 10000)
    for name in ("dtrain", "libdtrain_cuda.so"):
        if os.path.exists(os.path.join(BUILD, name)):
            shutil.copy(os.path.join(BUILD, name), build)
    subprocess.run(["cmake", "--preset", "release"], cwd=top, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(bin, "mpirun"), "w") as file:  # another MPI's may be the first on the PATH
        file.write('#!/bin/sh\nexec "%s" "$@"\n' % MPIEXEC)
    os.chmod(file.name, 0o755)


def run(top, command):
    path = os.pathsep.join([os.path.join(top, "build", "release"), os.path.join(top, "bin"), os.environ["PATH"]])
    env = {k: v for k, v in dict(os.environ, PATH=path).items() if not k.startswith("DTRAIN_")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=top, env=env, stdin=subprocess.DEVNULL, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def main():
    pages = [os.path.join(SOURCE, name) for name in ("README.md", "CONTRIBUTING.md")]
    pages += sorted(glob.glob(os.path.join(SOURCE, "docs", "**", "*.md"), recursive=True))
    found = [(os.path.relpath(page, SOURCE), list(of_markdown(page))) for page in pages]
    found += of_program()
    failed, used, n_run = [], set(), 0
    samples = dict(shown.samples(os.path.join(SOURCE, "README.md")))
    with tempfile.TemporaryDirectory(prefix="dtrain-test-commands-") as folder:
        top = os.path.join(folder, "dtrain")
        prepare(top)
        for where, commands in found:
            for command in commands:
                runs = excepted(command, used)
                if where.endswith(".md") != (PART == "pages"):
                    continue
                begin = time.monotonic()
                code, output = run(top, runs) if runs else (0, "")
                n_run += runs != ""
                print("%-25s %5.1f s  %s" % (where, time.monotonic() - begin, command), flush=True)
                if runs != command:
                    print("%35s%s" % ("", "as  " + runs if runs else "does not run"))
                if code != 0:
                    failed.append("%s: %s ended with %d:\n%s" % (where, runs, code, output[-2000:]))
                line = shown.missing(samples.get(command, []), output) if where == "README.md" and runs else None
                if line is not None:
                    failed.append("README.md: %s does not print: %s\n%s" % (command, line, output[-2000:]))
    failed += ["EXCEPTIONS: no command has %s any more" % row[0] for i, row in enumerate(EXCEPTIONS) if i not in used]
    for where, commands in found:
        if not commands and where in ("README.md", "dtrain.1", "--help"):
            failed.append("%s: no commands are found" % where)
    print("\n".join(["%d commands ran" % n_run, *failed]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
