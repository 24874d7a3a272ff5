"""Importing this continues in build/python, where scripts/test puts packages of PyPI (requirements.txt), if it is there."""
import os
import sys

PREFIX = os.path.join(os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")), "build", "python")
PYTHON = os.path.join(PREFIX, "bin", "python")

if os.path.exists(PYTHON) and os.path.realpath(sys.prefix) != os.path.realpath(PREFIX):
    os.execv(PYTHON, [PYTHON, *sys.argv])
