"""Packages of PyPI (requirements.txt). Importing this continues in build/python, where scripts/test puts them, if it is there."""
import importlib.util
import os
import sys

PREFIX = os.path.join(os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")), "build", "python")
PYTHON = os.path.join(PREFIX, "bin", "python")

if os.path.exists(PYTHON) and os.path.realpath(sys.prefix) != os.path.realpath(PREFIX):
    os.execv(PYTHON, [PYTHON, *sys.argv])


def need(*names):
    """Goes on where these are, or ends the test as skipped."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print("skipped: no Python package", ", ".join(missing), "(python3 -m venv build/python && build/python/bin/pip install -r tests/requirements.txt)")
        sys.exit(77)
