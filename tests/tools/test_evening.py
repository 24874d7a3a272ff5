"""The trainer that is read in an evening: it links the files that docs/reading.md lists, few enough lines of them, and trains to the
same bits as dtrain with the same configuration.

usage: DTRAIN=... MPIEXEC=... test_evening.py BINARY_DIR NM"""
import glob
import os
import random
import re
import subprocess
import sys

import checkpoint
import checks
from checks import SOURCE, check, dtrain, finish, new_folder, write_json
from samples import write_idx

MOST_FILES, MOST_CODE = 42, 4098
INCLUDE = re.compile(r'^#include "([a-z_]+/[^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
ASSERTION = re.compile(r"^(?: *DT_ASSERT\([^;]*\);|#include \"base/assert.h\"\n?)\n", re.M)
N_IMAGES = 330
CONFIG = {
    "data": {"format": "idx", "dir": "mnist"},
    "model": {
        "input": [1, 28, 28],
        "layers": [
            {"type": "conv2d", "filters": 8, "kernel": 3, "activation": "relu"},
            {"type": "conv2d", "filters": 16, "kernel": 3, "activation": "relu"},
            {"type": "max_pool2d", "size": 2},
            {"type": "flatten"},
            {"type": "dense", "units": 64, "activation": "relu"},
            {"type": "dense", "units": 10},
        ],
        "loss": "softmax_cross_entropy",
    },
    "train": {"epochs": 1, "seed": 1, "batch": {"per_rank": 32}, "optimizer": {"type": "adam", "lr": 0.001}},
    "distributed": {"allreduce": "ring", "bucket_mb": 0},
    "device": "ref",
}


def read(root, path):
    with open(os.path.join(root, path)) as file:
        return file.read()


def linked_sources(root, binary, nm):
    """The sources whose objects the linker took from our libraries: of each, its map names the object and a symbol that was wanted."""
    objects = {}
    for folder, _, names in os.walk(os.path.join(binary, "CMakeFiles")):
        for name in names:
            found = re.search(r"CMakeFiles/(dt_\w+)\.dir/(.+)\.o$", os.path.join(folder, name))
            if found and os.path.exists(os.path.join(root, found[2])):
                objects.setdefault((found[1], name), []).append((found[2], os.path.join(folder, name)))
    with open(os.path.join(binary, "evening.map")) as file:
        taken = re.findall(r"^lib(dt_\w+)\.a\((\S+\.o)\)\s+\S+ \((\w+)\)$", file.read(), re.M)
    assert len(taken) > 10, "the linker's map lists no objects"
    found = {"examples/evening.c"}
    for library, name, symbol in taken:
        candidates = [source for source, path in objects[library, name] if len(objects[library, name]) == 1 or defines(nm, path, symbol)]
        assert len(candidates) == 1, f"{library} {name}: {symbol} is defined by {candidates}"
        found |= set(candidates)
    return found


def defines(nm, path, symbol):
    told = subprocess.run([nm, "-P", "--defined-only", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return any(line.split()[0] == symbol for line in told.splitlines())


def with_headers(root, paths):
    found, left = set(), sorted(paths)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += INCLUDE.findall(read(root, path))
    return found


def count(root, paths):
    """(lines, lines of code: neither blank nor comment), both without assertions."""
    texts = [ASSERTION.sub("", read(root, path)) for path in paths]
    return (sum(text.count("\n") for text in texts),
            sum(1 for text in texts for line in COMMENT.sub("", text).splitlines() if line.strip()))


def check_reading(root, binary, nm):
    linked = with_headers(root, linked_sources(root, binary, nm))
    lines, code = count(root, linked)
    text = read(root, "docs/reading.md")
    files = re.findall(r"^\| `([^`]+)` \|.*\| (\d+) \|$", text, re.M)
    listed = [path for path, _ in files]
    says = [int(number.replace(",", "")) for number in
            re.search(r"(\d+) files with ([\d,]+) lines of code\.\sAt (\d+) lines of code a minute\sthey take (\d+) minutes", text).groups()]
    print(f"evening links {len(linked)} files, {lines} lines, {code} of them code")
    wrong = [f"docs/reading.md lacks {path}" for path in sorted(linked - set(listed))]
    wrong += [f"docs/reading.md lists {path}, which evening does not link" for path in listed if path not in linked]
    wrong += [f"docs/reading.md lists {path} twice" for path in set(listed) if listed.count(path) > 1]
    wrong += [f"more than {MOST_FILES} files"] if len(linked) > MOST_FILES else []
    wrong += [f"more than {MOST_CODE} lines of code"] if code > MOST_CODE else []
    for what, told, measured in (("files", says[0], len(linked)), ("lines of code", says[1], code),
                                 ("minutes", says[3], sum(int(minutes) for _, minutes in files))):
        wrong += [f"docs/reading.md says {told} {what}, there are {measured}"] if abs(told - measured) > measured // 50 else []
    for path, minutes in files:
        needed = count(root, [path])[1] / says[2] if path in linked else int(minutes)
        wrong += [f"docs/reading.md: {path} takes {needed:.1f} minutes, not {minutes}"] if abs(int(minutes) - needed) > 1 + needed / 5 else []
    return wrong


def tensors_of(path):
    """The weights as one string of bytes, tensor after tensor as in the network."""
    header, data = checkpoint.split(checkpoint.read(path))
    names = [name + kind for name in ("conv1", "conv2", "fc1", "fc2") for kind in (".weight", ".bias")]
    return b"".join(data[slice(*header[name]["data_offsets"])] for name in names)


def check_bits(binary, n_ranks):
    run, weights = f"run{n_ranks}", f"weights{n_ranks}"
    dtrain("--config", "evening.json", "--run", run, ranks=n_ranks)
    told = checks.run(os.path.join(binary, "evening"), "mnist", weights, ranks=n_ranks, code=0)
    counted, formula = re.search(r"messages of rank 0: (\d+), .* = (\d+)\n", told.stdout).groups()
    check(counted == formula, f"{n_ranks} ranks: {counted} messages, the formula says {formula}")
    theirs = tensors_of(max(glob.glob(f"{run}/checkpoints/*")))
    check(theirs == checkpoint.read(weights), f"{n_ranks} ranks: the weights of evening and dtrain differ")


BINARY, NM = sys.argv[1:]
for line in check_reading(SOURCE, BINARY, NM):
    check(False, line)
new_folder()
write_json("evening.json", CONFIG)
os.mkdir("mnist")
numbers = random.Random(1)
for split in ("train", "t10k"):
    labels = [numbers.randrange(10) for _ in range(N_IMAGES)]
    pixels = b"".join(bytes([20 * label]) * 392 + numbers.randbytes(392) for label in labels)
    write_idx("mnist", split, (28, 28), pixels, labels)
for ranks in (1, 2, 3):
    check_bits(BINARY, ranks)
finish()
