"""The result of a command as data: what it says with --json (docs/files.md)."""
import json

from checks import check, dtrain


class Document:
    """`dtrain ARGUMENTS --json -`."""

    def __init__(self, *arguments, **options):
        done = dtrain(*arguments, "--json", "-", **options)
        self.stderr, self.document = done.stderr, json.loads(done.stdout)
        parts = self.document["parts"]
        self.parts = {part["title"]: part for part in parts if "title" in part}
        self.prose = "\n".join(part["text"] for part in parts if part["type"] == "text")

    def figure(self, title, name):
        return self.parts[title]["figures"].get(name, {}).get("value")

    def rows(self, title):
        return self.parts[title]["rows"]

    def lines(self, title):
        """{name: [(x, y), ...]}"""
        return {line["name"]: list(zip(line["x"], line["y"])) for line in self.parts[title]["lines"]}

    def has(self, *texts):
        for text in texts:
            check(text in self.prose, f"no {text!r}: {self.prose}")


def Report(*arguments):
    return Document("report", *arguments)
