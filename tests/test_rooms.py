"""Which folder may include which: one direction, from what people see down to what everything rests on. usage: test_rooms.py SOURCE_DIR"""
import os
import re
import sys

MAY_INCLUDE = {
    "base": {"base"},
    "model": {"model", "base"},
    "data": {"data", "model", "base"},
    "cpu": {"cpu", "model", "base"},
    "dist": {"dist", "model", "base"},
    "cuda": {"cuda", "dist", "model", "base"},
    "train": {"train", "cli", "dist", "data", "cpu", "model", "base"},
    "cli": {"cli", "train", "dist", "data", "cpu", "model", "base"},
}
INCLUDE = re.compile(r'^#include "([a-z_]+)/', re.M)


def main():
    wrong, n_files = [], 0
    for room, allowed in MAY_INCLUDE.items():
        for folder, _, names in os.walk(os.path.join(sys.argv[1], room)):
            for name in names:
                if name.endswith((".c", ".h", ".cu", ".cuh")):
                    n_files += 1
                    path = os.path.join(folder, name)
                    with open(path) as file:
                        included = set(INCLUDE.findall(file.read()))
                    wrong += [f"{os.path.relpath(path, sys.argv[1])} includes {other}/" for other in sorted(included - allowed)]
    print("\n".join(wrong) or f"{n_files} files include only what they may")
    sys.exit(bool(wrong) or n_files < 100)


main()
