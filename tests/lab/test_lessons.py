"""The lessons that end with reference values: the numbers of their JSON, the text, and what a lesson says where a number is another.

usage: DTRAIN=... MPIEXEC=... test_lessons.py WRONG_LAB"""
import re
import sys

from checks import check, dtrain, finish, new_folder, read_json, refused, run

WRONG_LAB = sys.argv[1]


class Lesson:
    """A lesson's document: it passes, its text ends with the verdict and is at most 80 columns wide."""

    def __init__(self, words, ranks=0):
        self.words = words
        text = dtrain("lab", *words.split(), "--json", "lesson.json", "--force", ranks=ranks).stdout
        self.document = read_json("lesson.json")
        summary = self.document["summary"]
        check(self.document["command"] == "lab " + words.split()[0] and self.document["verdict"] == "PASS", words, self.document["verdict"])
        check(re.fullmatch(r"PASS: all [1-9]\d* reference values reproduced", summary), words, summary)
        check(text.endswith(f"\n{summary}\n"), f"{words}: the text ends with {text[-80:]!r}")
        check(all(len(line) <= 80 for line in text.splitlines()), f"{words}: {[line for line in text.splitlines() if len(line) > 80]}")
        check(len(text.splitlines()) <= 80, f"{words}: {len(text.splitlines())} lines")

    def part(self, title):
        return next(part for part in self.document["parts"] if part.get("title") == title)

    def column(self, title, name):
        return [row[name] for row in self.part(title)["rows"]]

    def line(self, title, name):
        return next(line for line in self.part(title)["lines"] if line["name"] == name)["y"]

    def texts(self):
        return " ".join(part["text"] for part in self.document["parts"] if part["type"] == "text")

    def is_near(self, what, values, expected, tolerance):
        near = len(values) == len(expected) and all(abs(a - b) <= tolerance for a, b in zip(values, expected))
        check(near, f"{self.words}: {what}: {values}, not {expected}")

    def equals(self, what, value, expected):
        check(value == expected, f"{self.words}: {what}: {value}, not {expected}")


def wrong(words, ranks=0):
    """With the faults of wrong_lab.c a lesson ends with 1, and says what differs, once, everywhere."""
    done = run(WRONG_LAB, "lab", *words.split(), "--json", "wrong.json", "--force", ranks=ranks, code=1)
    check(re.fullmatch(r"wrote wrong.json\ndtrain: .*(: got .*, expected .*|: does not hold)\n", done.stderr), f"{words}: the difference is {done.stderr!r}")
    document = read_json("wrong.json")
    check(document["verdict"] == "FAIL" and document["summary"].removeprefix("FAIL: ") in done.stderr, f"{words}: {document['summary']}")
    check(document["summary"] in " ".join(done.stdout.split()) and "PASS" not in done.stdout, f"{words}: a wrong number passes")


def test_lr():
    lr = Lesson("lr")
    lr.is_near("gap / r²", lr.column("Where two steps of r and one of 2 r end", "gap / r²"), [9.88] * 5, 0.005)
    lr.is_near("warm-up", lr.column("Warm-up of 4 ranks", "rate"), [0.001, 0.0025, 0.004], 1e-12)
    wrong("lr")


def test_bits():
    bits = Lesson("bits")
    bits.equals("integers", set(bits.column("Sums", "sum of integers")), {-84373664186368})
    bits.equals("digits as a float", set(bits.column("Sums", "as a float")), {"c299798d"})
    check(len(set(bits.column("Sums", "bits"))) > 1 and len(bits.column("Sums", "bits")) == 16, "bits: one sum of floats for all")
    check(f"Floats: {len(set(bits.column('Sums', 'bits')))} different sums" in bits.texts(), "bits: another number of sums")
    wrong("bits")


def test_shards():
    for ranks in (2, 3, 4, 8):
        shards = Lesson(f"shards --ranks {ranks}")
        shards.equals("uses", shards.column("After one epoch", "uses"), [1, 1, ranks, 1, 1, 1, 1])
        boxes = {name: [len([box for box in shards.part(name)["boxes"] if box["lane"] == rank]) for rank in range(ranks)]
                 for name in ("shard", "global", "replicate")}
        shards.equals("samples of a rank", boxes, {"shard": [2] * ranks, "global": [2] * ranks, "replicate": [2 * ranks] * ranks})
    shards = Lesson("shards")
    accuracy = dict(zip(shards.column("After one epoch", "sharing"), shards.column("After one epoch", "accuracy")))
    margin = dict(zip(shards.column("After one epoch", "sharing"), shards.column("After one epoch", "±")))
    check(all(0 < m < 3 for m in margin.values()), f"shards: ± {margin}")
    check(abs(accuracy["shard"] - accuracy["global"]) < 1 and abs(accuracy["by label"] - accuracy["shard"]) < 1, f"shards: {accuracy}")
    check("no difference to be seen: shard, by label" in shards.texts().replace("`", ""), f"shards: {shards.texts()}")
    check("less accurate: sorted file, shard alone, by label alone" in shards.texts().replace("`", ""), f"shards: {shards.texts()}")
    wrong("shards")
    refused(64, "--ranks: expected a whole number 2..8, got '9'", "lab", "shards", "--ranks", "9")


def test_batch():
    batch = Lesson("batch")
    table = "Until the accuracy is reached"
    steps, samples, sizes = (batch.column(table, name) for name in ("steps", "samples", "batch"))
    batch.equals("sizes", sizes, [8, 16, 32, 64, 128, 256, 512, 1024])
    check(all(0 < margin < mean for margin, mean in zip(batch.column(table, "± samples"), samples)), "batch: ± of the samples")
    batch.equals("steps of the picture", batch.line("Steps", "measured"), steps)
    more = re.search(r"steps fall ([\d.]+)-fold and samples rise ([\d.]+)-fold", batch.texts())
    batch.is_near("what the lesson concludes", [float(n) for n in more.groups()], [steps[0] / steps[-1], samples[-1] / samples[0]], 0.06)
    wrong("batch")


new_folder()
for test in (test_lr, test_bits, test_shards, test_batch):
    test()
finish()
