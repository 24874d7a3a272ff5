"""How the files of the source may depend on each other. Folders include each other in one direction, from what people see down to what
everything rests on, except dist/launch and dist/liveness; no files, in one folder or several, include or call each other in a circle; each
room has a ceiling of lines; and a training step takes the way that docs/design.md describes. What calls what is read from the objects of a
build.

usage: test_rooms.py SOURCE_DIR BINARY_DIR NM"""
import os
import re
import subprocess
import sys

BELOW = {"model", "base"}
RANKS = {"dist/ranks", "dist/liveness", "dist/launch"}
PRIVATE = "dist/ranks/comm_private.h"
DIST = {"dist/compression", "dist/allreduce", "dist/strategy"} | RANKS
ENGINE = {"train", "data", "cpu", "checkpoint"} | DIST | BELOW
TRAINER = {"train/hooks", "train/save"} | ENGINE
# The files that the engine reaches by includes.
MOST_FILES, MOST_LINES = 60, 6394
# The files that a training step passes, and the calls into one that it has passed already.
MOST_PASSED, MOST_CLIMBS = 9, 3
# The lines that each folder may have, without those of assertions. A ceiling goes down freely, and up only where it is agreed.
CEILINGS = {
    "base": 2294,
    "model": 2653,
    "checkpoint": 1836,
    "data": 4999,
    "dist/ranks": 1584,
    "dist/liveness": 1337,
    "dist/launch": 1473,
    "dist/allreduce": 2285,
    "dist/compression": 1009,
    "dist/strategy": 4306,
    "cpu": 10047,
    "cuda": 6200,
    "train": 7243,
    "cli": 10564,
    "view": 3355,
    "lab": 4630,
    "ops": 6754,
    "report": 2912,
}
ASSERTION = re.compile(r"^(?: *DT_ASSERT\([^;]*\);|#include \"base/assert.h\"\n?)\n", re.M)
CLI = {"view", "cli", "cli/config", "cli/sinks", "cli/commands"}
# The rooms that a room may include beside itself. A room is a folder, or a folder or file in it that has a line of
# its own.
MAY_INCLUDE = {
    "base": set(),
    "model": {"base"},
    "checkpoint": BELOW,
    "data": {"base"},
    PRIVATE: {"dist/ranks"},
    "dist/ranks": {PRIVATE, "base"},
    "dist/liveness": {PRIVATE, "dist/ranks", "dist/launch", "base"},
    "dist/launch": {PRIVATE, "dist/liveness", "dist/ranks", "base"},
    "dist/compression": {"base"},
    "dist/allreduce": {"dist/compression"} | RANKS | BELOW,
    "dist/strategy": DIST | BELOW,
    "cpu/kernels": BELOW,
    "cpu/reference": BELOW,
    "cpu": {"cpu/kernels"} | BELOW,
    "cuda": {"cuda/block_plan.h"} | DIST | BELOW,
    "cuda/block_plan.h": BELOW,
    "train": ENGINE,
    "train/hooks": ENGINE,
    "train/save": ENGINE,
    "examples": ENGINE,
    "view": {"base"},
    "cli/config": {"cli"} | TRAINER,
    "cli/sinks": {"cli", "cli/config", "view"} | TRAINER,
    "cli/commands": {"cuda/block_plan.h", "cli", "cli/config", "cli/sinks", "view"} | TRAINER,
    "cli": {"cli/config", "cli/sinks", "cli/commands", "view"} | TRAINER,
    "cli/program.c": {"report"} | CLI | TRAINER,
    "report": CLI | TRAINER,
    "lab": CLI | TRAINER,
    "ops": {"lab", "report"} | CLI | TRAINER,
}
FOLDERS = sorted({room.split("/")[0] for room in MAY_INCLUDE})
INCLUDE = re.compile(r'^#include "([a-z_]+/[^"]+)"', re.M)
OBJECT = re.compile(r"CMakeFiles/[^/]+\.dir/((?:%s)/.+)\.o$" % "|".join(FOLDERS))


def room(path):
    folder = path
    while "/" in folder and folder not in MAY_INCLUDE:
        folder = os.path.dirname(folder)
    return folder


def files(root, folders, endings):
    for top in folders:
        for folder, _, names in os.walk(os.path.join(root, top)):
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(endings))


def includes(root):
    """File: the files that it includes."""
    found = {}
    for path in files(root, FOLDERS, (".c", ".h", ".cu", ".cuh")):
        with open(os.path.join(root, path)) as file:
            found[path] = set(INCLUDE.findall(file.read()))
    return found


def n_lines(root, path):
    """Lines that hold nothing but an assertion, or the macro's include, are not counted."""
    with open(os.path.join(root, path)) as file:
        return ASSERTION.sub("", file.read()).count("\n")


def too_large(root):
    for folder, ceiling in CEILINGS.items():
        lines = sum(n_lines(root, path) for path in files(root, [folder], (".c", ".h", ".cu", ".cuh")))
        if lines > ceiling:
            yield f"{folder} has {lines} lines (at most {ceiling}: a ceiling goes down freely, and up only where it is agreed)"


def closure(root, include, start):
    """The files that one reaches by includes, where a header brings the source of its name; and their lines."""
    found, todo = set(), [start]
    while todo:
        path = todo.pop()
        if path in found or path not in include:
            continue
        found.add(path)
        todo += [*include[path], path[:-1] + "c"]
    return len(found), sum(n_lines(root, path) for path in found)


def calls(root, binary, nm):
    """Module, a file without its ending: the modules whose functions and variables it uses. An object whose source is gone is old."""
    defines, uses = {}, {}
    found = ((os.path.join(binary, path), OBJECT.search(path)) for path in files(binary, ["CMakeFiles"], ".o"))
    objects = {path: os.path.splitext(source[1])[0] for path, source in found if source and os.path.exists(os.path.join(root, source[1]))}
    symbols = subprocess.run([nm, "-A", "-P", *objects], stdout=subprocess.PIPE, text=True, check=True).stdout
    for path, name, kind in (line.split()[:3] for line in symbols.splitlines()):
        module = objects[path.removesuffix(":")]
        if kind == "U":
            uses.setdefault(module, set()).add(name)
        elif kind.isupper():
            defines[name] = module
    return {module: {defines[name] for name in names if name in defines} - {module} for module, names in uses.items()}


def circle(graph):
    """Some circle of the graph, or []."""
    done = set()

    def follow(path):
        for to in sorted(graph.get(path[-1], ())):
            if to in path:
                return path[path.index(to):] + [to]
            if to not in done:
                found = follow(path + [to])
                if found:
                    return found
        done.add(path[-1])
        return []

    return next((found for start in sorted(graph) if (found := follow([start]))), [])


def step_path(root, call):
    """What is wrong with docs/design.md's table of the files that a step passes. A file that comes again is a climb."""
    with open(os.path.join(root, "docs/design.md")) as file:
        text = file.read()
    rows = re.findall(r"^\| `([\w/]+)\.c` \| *(?:`([\w/]+)\.c`)? *\| *(call|pointer)? *\|", text[text.index("## The path of a step"):], re.M)
    path = list(dict.fromkeys(file for file, _, _ in rows))
    climbs = len(rows) - len(path)
    if len(path) > MOST_PASSED or climbs > MOST_CLIMBS or len(path) < 3:
        yield f"a step passes {len(path)} files with {climbs} climbs (at most {MOST_PASSED} and {MOST_CLIMBS})"
    for i, (file, caller, through) in enumerate(rows[1:], 1):
        if caller not in [row[0] for row in rows[:i]]:
            yield f"docs/design.md: {file} is called by {caller}, which a step has not passed"
        if (file in call.get(caller, ())) != (through == "call"):
            yield f"docs/design.md: {caller} reaches {file} by a {through}, the objects say otherwise"
    # Other parts of the program use the network, the communicator and the counts of an allreduce, too.
    inner = set(path[1:]) - {"model/network", "dist/ranks/comm", "dist/allreduce/allreduce"}
    for file in path:
        for beside in sorted(call.get(file, set()) - set(path)):
            found = inner & reached_by(call, beside)
            if found:
                yield f"{file} calls {beside}, which leads to {', '.join(sorted(found))}: docs/design.md leaves it out of a step's way"


def reached_by(call, start):
    found, todo = set(), [start]
    while todo:
        new = call.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def main():
    root, binary, nm = sys.argv[1:]
    include, call = includes(root), calls(root, binary, nm)
    wrong = [f"{path} includes {to}" for path, others in include.items() for to in sorted(others)
             if room(to) not in MAY_INCLUDE.get(room(path), set()) | {room(path)}]
    wrong += ["a circle of includes: " + " -> ".join(circle(include))] if circle(include) else []
    wrong += ["a circle of calls: " + " -> ".join(circle(call))] if circle(call) else []
    reached, lines = closure(root, include, "train/train.c")
    wrong += [f"train/train.c reaches {reached} files, {lines} lines"] if reached > MOST_FILES or lines > MOST_LINES else []
    wrong += too_large(root)
    wrong += step_path(root, call)
    print("\n".join(wrong) or f"{len(include)} files and {len(call)} modules depend on each other as they may")
    sys.exit(bool(wrong) or len(include) < 100 or len(call) < 50)


main()
