"""Packages of PyPI (requirements.txt): of the interpreter that runs, or of build/python, where scripts/test puts them."""
import importlib.util
import os
import sys

PREFIX = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "python")


def need(*names):
    """Goes on where these are, or ends the test as skipped."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    python = os.path.join(PREFIX, "bin", "python")
    if missing and os.path.exists(python) and os.path.realpath(sys.prefix) != os.path.realpath(PREFIX):
        os.execv(python, [python, *sys.argv])
    if missing:
        print("skipped: no Python package", ", ".join(missing), "(python3 -m venv build/python && build/python/bin/pip install -r tests/requirements.txt)")
        sys.exit(77)
