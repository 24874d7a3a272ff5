"""The results of gpu-check: a JSON document that is complete at any moment, also after a kill.

{"parts": {PART: {"state", "seconds", "program", "why", "rows": [ROW]}}}, and what report.py concludes from them. A row is {"name", "value",
"unit"} and what else was seen of it, or {"name", "failed": why}, or {"name", "skipped": why}. docs/benchmarks/gpu-check.schema.json
is its schema.
"""
import json
import os

from gpu import report

SCHEMA = 1


class Record:
    def __init__(self, path, measured, probe):
        self.path = path
        self.document = {"schema": SCHEMA, "measured": measured, "passed": False, "probe": probe, "parts": {}}
        earlier = load(path)
        if earlier and all(earlier[key] == self.document[key] for key in ("schema", "measured")) and \
                earlier["probe"].get("GPU") == probe.get("GPU"):
            self.document["parts"] = earlier["parts"]
        elif earlier:
            os.replace(path, path + ".before")  # of another GPU, or without one

    def begin(self, part, program):
        """Resumes a part that was cut off, if the program ("": none yet) is still the same. False: it starts anew."""
        earlier = self.document["parts"].get(part, {})
        goes_on = program and earlier.get("state") in ("running", "cut", "failed") and earlier["program"] == program
        rows = [row for row in earlier.get("rows", []) if goes_on and "value" in row]
        self.document["parts"][part] = {"state": "running", "seconds": 0, "program": program, "why": "", "rows": rows}
        self.write()
        return bool(rows)

    def add(self, part, row):
        self.document["parts"][part]["rows"].append(row)
        self.write()

    def end(self, part, state, why, seconds):
        self.document["parts"][part].update(state=state, why=why, seconds=round(seconds, 1))
        self.write()

    def has(self, part, name):
        return report.find(self.document, part, name) is not None

    def write(self):
        self.document.update(report.conclusions(self.document))
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w") as file:
            json.dump(self.document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)


def load(path):
    """None if there is no file; another kind of file raises an error of its reader."""
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)
