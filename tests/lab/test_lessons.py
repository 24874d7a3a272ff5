"""The lessons that end with reference values: the numbers of their JSON, the text, and what a lesson says where a number is another.

usage: DTRAIN=... MPIEXEC=... test_lessons.py WRONG_LAB"""
import math
import os
import re
import sys

from checks import DTRAIN, SOURCE, check, dtrain, finish, new_folder, read, read_json, refused, run
from terminal import Terminal

WRONG_LAB = sys.argv[1]


class Lesson:
    """A lesson's document: it passes, its text ends with the verdict and is at most 80 columns wide."""

    def __init__(self, words, ranks=0, most_lines=80):
        self.words = words
        text = dtrain("lab", *words.split(), "--json", "lesson.json", "--force", ranks=ranks).stdout
        self.document = read_json("lesson.json")
        summary = self.document["summary"]
        check(self.document["command"] == "lab " + words.split()[0] and self.document["verdict"] == "PASS", words, self.document["verdict"])
        check(re.fullmatch(r"PASS: all [1-9]\d* reference values reproduced", summary), words, summary)
        check(text.endswith(f"\n{summary}\n"), f"{words}: the text ends with {text[-80:]!r}")
        check(all(len(line) <= 80 for line in text.splitlines()), f"{words}: {[line for line in text.splitlines() if len(line) > 80]}")
        check(len(text.splitlines()) <= most_lines, f"{words}: {len(text.splitlines())} lines")

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
    check(document["summary"] in " ".join(done.stdout.split()) and "PASS:" not in done.stdout, f"{words}: a wrong number passes")


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


def test_linear():
    table = "Where the ranks end"
    linear = Lesson("linear", 2)
    known = [1.963652, 2.513418, 1.933688, 1.933688, 1.963652], [2.529543, 3.048382, 2.349239, 2.349239, 2.529543]
    for name, expected in zip(("m₀", "n₀"), known):
        linear.is_near(name, linear.column(table, name), expected, 1e-6)
    linear.is_near("apart", linear.column(table, "apart")[:4], [0, math.sqrt(2), 0.359655, 0.359655], 2e-6)
    ends = [line["x"][-1] for line in linear.part("Average on, broadcast off")["lines"] if line["name"].startswith("rank")]
    linear.is_near("the picture", ends, [2.513418, 1.513418], 1e-6)
    check("Batch all: 0 of 64 steps raised" in linear.texts(), f"linear: {linear.texts()}")
    wrong("linear", 2)
    Lesson("linear --batch 16", 2)
    check(re.search(r"Batch 1: [1-9]\d* of 64 steps raised", Lesson("linear --batch 1", 2).texts()), "linear: single samples never raise the loss")
    refused(64, "--batch: '2' is none of 1, 16, all", "lab", "linear", "--batch", "2", ranks=2)


def test_server():
    server = Lesson("server", 4)
    server.equals("bytes", server.column("The busiest rank", "bytes a step"), [47136, 94272, 94200, 94200, 94200])
    server.equals("bytes of each rank", server.line("What each rank sends in a step", "central"), [94200, 31400, 31400, 31400])
    server.is_near("the histogram's sum", [sum(server.line("Stale gradients", "server, async"))], [100], 1e-6)


def test_compression():
    compression = Lesson("compression", 4)
    compression.equals("bytes", compression.column("Codecs", "sent"), [94272, 47136, 47136, 23847, 3864, 1896])
    check("Each sends 7,856 numbers" in compression.document["parts"][0]["text"], f"compression: {compression.document['parts'][0]}")
    rows = {row["type"]: row for row in compression.part("Codecs")["rows"]}
    check(all(rows[name]["without"] < rows["none"]["without"] - 0.5 for name in ("onebit", "topk")), f"compression: {rows}")
    check(all(abs(rows[name]["with feedback"] - rows["none"]["without"]) < 0.5 for name in rows if name != "none"), f"compression: {rows}")
    compression.equals("claims", compression.column("Beside none", "costs accuracy"), ["onebit, topk", "no codec"])
    check("better" not in str(compression.document["parts"]), "compression: it claims that a codec improves accuracy")
    wrong("compression", 4)


def test_stragglers():
    stragglers = Lesson("stragglers", 4, most_lines=90)
    ring, sync, ahead, free = stragglers.part("Time of a step")["rows"]
    slow = "rank 2, slow"
    check(min(ring[f"rank {rank}"] for rank in (0, 1, 3)) >= 50 and min(sync["rank 0"], sync["rank 1"], ring[slow]) >= 50, f"stragglers: {ring}, {sync}")
    check(free["rank 0"] < free[slow] and 30 <= ahead["rank 0"], f"stragglers: {ahead}, {free}")
    waits = {name: sum(box["kind"] == 7 and box["end"] - box["begin"] > 20 for box in stragglers.part(name)["boxes"] if box["lane"] == 0)
             for name in ("ring", "server, async")}
    check(waits["ring"] >= 8 and waits["server, async"] <= 2, f"stragglers: rank 0 waits {waits} times")
    stragglers.is_near("by formula", stragglers.column("The slowest of n ranks", "by formula"), [20.0, 26.8, 30.2, 32.3, 38.1, 39.7], 0.05)
    check(abs(sum(stragglers.line("Stale gradients", "server, async")) - 100) < 1e-6, "stragglers: no staleness")
    wrong("stragglers", 4)


def test_live_line():
    """On a terminal alone, and taken away at the end."""
    terminal = Terminal(DTRAIN, "lab", "shards")
    check(terminal.end() == 0, "shards on a terminal")
    shown = terminal.text
    check("\r\x1b[Kseed 1 of 10" in shown and shown.rfind("\r\x1b[K") < shown.rfind("How ranks share"), f"shards: no live line: {shown[:200]!r}")


def test_gradtape():
    tape = Lesson("gradtape", 2)
    numbers = [tape.column("Numbers of each unit", part) for part in ("input 1", "input 2", "bias")]
    expected = ([1, 0, 2.0128188, 0.75015247, 1.3814857, 1.3814857, -0.3814857, -1.3814857, -0.3814857, -0.3814857],
                [1, 0, 2.7977395, 1.4605565, 2.129148, 2.129148, -1.129148, -2.129148, -1.129148, -1.129148],
                [1, 0, 4, 4, 4, 4, -3, -4, -3, -3])
    for actual, known in zip(numbers, expected):
        tape.is_near("numbers of both ranks", actual, known, 1e-7)
    tape.is_near("losses", [figure["value"] for figure in tape.part("Loss")["figures"].values()], [26.431675, 0], 1e-6)
    tape.is_near("samples", tape.column("Samples", "input 1")[:4], [0.5488135, 0.60276335, 0.4236548, 0.4375872], 1e-7)
    kinds = [box["kind"] for box in tape.part("Where the ranks are equal")["boxes"] if box["lane"] == 1]
    tape.equals("where the ranks are equal", kinds, [1, 1, 2, 1, 2])
    check("1 - 1.3814857 = -0.3814857" in tape.texts(), f"gradtape: no wrong sign: {tape.texts()}")
    wrong("gradtape", 2)
    os.mkfifo("deaf")  # which nobody reads
    done = run(WRONG_LAB, "lab", "gradtape", "--html", "deaf", ranks=2, code=1)
    check(re.fullmatch(r"dtrain: deaf: nobody reads.*\ndtrain: .*: got .*, expected .*\n", done.stderr), f"gradtape: {done.stderr!r}")
    for lesson, n in (("gradtape", 2), ("linear", 2), ("server", 4), ("compression", 4), ("stragglers", 4)):
        for ranks in (0, 3):
            text = f"lab {lesson}: it takes {n} ranks, not {max(1, ranks)} (mpirun -np {n} dtrain lab {lesson})"
            refused(78, text, "lab", lesson, ranks=ranks)
    refused(64, "--config does not belong to lab gradtape (see dtrain lab gradtape --help)", "lab", "gradtape", "--config", "x.json", ranks=2)


def passes(part):
    """(micro-batch, backward) of each row in the order of time; checks that backward takes twice as long."""
    rows = [[box for box in part["boxes"] if box["lane"] == lane] for lane in range(len(part["lanes"]))]
    for row in rows:
        lengths = [(box["end"] - box["begin"]) / box["kind"] for box in row]  # kind 1 is forward, 2 backward
        check(max(lengths) - min(lengths) < 1e-6, f"{part['title']}: passes of {min(lengths)} to {max(lengths)}")
    return [[(int(box["label"].lstrip("<")), box["label"].startswith("<")) for box in row] for row in rows]


def test_pipeline():
    for ranks in (2, 3, 4, 8):
        pipeline = Lesson(f"pipeline --ranks {ranks}")
        bubble = (ranks - 1) / (8 + ranks - 1)
        for name in ("waiting", "formula"):
            pipeline.is_near(name, pipeline.column("Schedules", name), [1 - 1 / ranks, bubble, bubble], 1e-9)
        pipeline.equals("units", pipeline.column("Schedules", "units"), [24 * ranks, 3 * (7 + ranks), 3 * (7 + ranks)])
        held = [" ".join(map(str, row)) for row in ([1] * ranks, [8] * ranks, [min(8, ranks - stage) for stage in range(ranks)])]
        pipeline.equals("micro-batches held", pipeline.column("Schedules", "held by each stage"), held)
        forward, backward = [(i, False) for i in range(1, 9)], [(i, True) for i in range(1, 9)]
        pipeline.equals("gpipe", passes(pipeline.part("gpipe")), [forward + backward] * ranks)
        one_f_one_b = [forward[:n] + [p for pair in zip(backward, forward[n:]) for p in pair] + backward[8 - n:] for n in range(ranks, 0, -1)]
        pipeline.equals("1f1b", passes(pipeline.part("1f1b")), one_f_one_b)
    wrong("pipeline")
    refused(64, "--ranks: expected a whole number 2..8, got '1'", "lab", "pipeline", "--ranks", "1")


def test_model_parallel():
    mnist = Lesson(f"model-parallel --config {SOURCE}/configs/mnist.json")
    mnist.equals("bytes", mnist.column("Four ways", "sent"), [126877696, 126877696, 380694528, 28797168])
    mnist.is_near("devices at work", mnist.column("Four ways", "devices at work"), [1, 1.11, 4, 4], 0.005)
    mnist.is_near("operations", mnist.column("Blocks of each device", "operations"), [0.0162, 0.8853, 0.0984, 0.0001], 1e-4)
    every = [(i, backward) for backward in (False, True) for i in range(1, 9)]
    mnist.equals("the pipeline", passes(mnist.part("pipeline parallel")), [every] * 4)
    ends = [max(box["end"] for box in mnist.part(way)["boxes"]) for way in mnist.column("Four ways", "way")]
    mnist.is_near("lengths of the pictures", ends, [100, 90, 25, 25], 8)
    wrong(f"model-parallel --config {SOURCE}/configs/mnist.json")
    Lesson(f"model-parallel --config {SOURCE}/configs/linear.json --ranks 8")
    refused(64, "--config FILE is required (see dtrain lab model-parallel --help)", "lab", "model-parallel")


def vectors(lesson, step):
    """What each rank has after a step: the labels of its boxes."""
    lanes = next(part for part in lesson.document["parts"] if part["type"] == "lanes" and part["step"] == step)
    return [" ".join(box["label"] for box in lanes["boxes"] if box["lane"] == rank) for rank in range(len(lanes["lanes"]))]


def test_reduce():
    reduce = Lesson("reduce", most_lines=100)
    reduce.equals("after reduce", reduce.column("Sums", "after reduce"), [15, 2, 7, 4, 5])
    reduce.equals("after allreduce", reduce.column("Sums", "after allreduce"), [15] * 5)
    reduce.equals("round 3", vectors(reduce, "Round 3 of 6"), ["15", "2", "7", "4", "5"])
    refused(64, "--ranks does not belong to lab reduce (see dtrain lab reduce --help)", "lab", "reduce", "--ranks", "4")
    refused(64, "(did you mean 'lab reduce'?)", "lab", "rduce")
    twice = run(DTRAIN, "lab", "reduce", ranks=2, code=0, stdin=None).stdout
    check(twice.count("PASS: all") == 1, f"reduce: two copies both tell: {twice}")


def test_ring():
    ring = Lesson("allreduce", most_lines=140)
    ring.equals("at first", vectors(ring, "At first"), [" ".join(f"{rank}{i}" for i in range(4)) for rank in "abcd"])
    for step, rows in ((1, "a0 a1 a2 ad3|ab0 b1 b2 b3|c0 bc1 c2 c3|d0 d1 cd2 d3"), (3, "a0 abcd1 acd2 ad3|ab0 b1 abcd2 abd3|abc0 bc1 c2 abcd3|abcd0 bcd1 cd2 d3"),
                       (4, "abcd0 abcd1 acd2 ad3|ab0 abcd1 abcd2 abd3|abc0 bc1 abcd2 abcd3|abcd0 bcd1 cd2 abcd3")):
        ring.equals(f"round {step}", vectors(ring, f"Round {step} of 6"), rows.split("|"))
    ring.equals("at the end", vectors(ring, "Round 6 of 6"), ["abcd0 abcd1 abcd2 abcd3"] * 4)
    messages = [part["rows"] for part in ring.document["parts"] if part["type"] == "table" and part.get("step") == "Round 4 of 6"][0]
    ring.equals("messages of round 4", [" ".join(row[key] for key in ("from", "sends", "to", "operation")) for row in messages],
                ["A abcd1 B replaces", "B abcd2 C replaces", "C abcd3 D replaces", "D abcd0 A replaces"])
    few = dict(zip(ring.column("Simulated times", "algorithm"), ring.column("Simulated times", "few floats")))
    many = dict(zip(few, ring.column("Simulated times", "many floats")))
    ring.is_near("latency-bound", [few["ring"], few["recursive_doubling"]], [60e-6, 20e-6], 1e-7)
    ring.is_near("bandwidth-bound", [many["ring"], many["recursive_doubling"]], [6.72e-3, 10.1e-3], 5e-5)
    check(f"{min(few, key=few.get)} is fastest with 20.0 µs" in ring.texts() and f"{min(many, key=many.get)} is fastest with 6.70 ms" in ring.texts(),
          f"allreduce: {ring.texts()}")
    wrong("allreduce")


# The golden numbers of four workers and the tutorial's model, which a tree sends in five segments: rounds, messages, bytes.
COSTS = {"ring": [6, 24, 28797168], "tree": [8, 30, 28797168], "recursive_doubling": [2, 8, 38396224], "halving_doubling": [4, 16, 28797168],
         "all_to_all": [1, 12, 57594336], "master_worker": [4, 6, 28797168]}


def test_allreduce():
    """test_algorithms.c has every number of ranks up to 17, and every number of elements around it."""
    table = "Messages and bytes"
    large = Lesson("allreduce --elements 1199882", most_lines=140)
    large.equals("costs", {row["algorithm"]: [row["rounds"], row["messages"], row["sent"]] for row in large.part(table)["rows"]}, COSTS)
    for algorithm in COSTS:
        for ranks, elements in ((1, 1), (2, 1000), (3, 2), (7, 7), (8, 1), (16, 17), (17, 1000)):
            lesson = Lesson(f"allreduce --algorithm {algorithm} --ranks {ranks} --elements {elements}", most_lines=340)
            steps = {part["step"] for part in lesson.document["parts"] if "step" in part}
            rounds = next(row["rounds"] for row in lesson.part(table)["rows"] if row.get("chosen"))
            lesson.equals("steps", len(steps), rounds + 1 if ranks <= 16 else 0)
            lesson.equals("proof", {row["verdict"] for row in lesson.part("Proof")["rows"]}, {"PASS"})
    Lesson("allreduce --ranks 64", most_lines=50)
    for option, value, text in (("algorithm", "rong", "unknown algorithm 'rong' (did you mean 'ring'?)"),
                                ("algorithm", "x", f"unknown algorithm 'x' (one of {', '.join(COSTS)})"),
                                ("ranks", "0", "expected a whole number 1..64, got '0'"), ("ranks", "65", "expected a whole number 1..64, got '65'"),
                                ("ranks", "4x", "expected a whole number 1..64, got '4x'"),
                                ("elements", "-1", "expected a whole number 1..33554432, got '-1'")):
        refused(64, f"--{option}: {text}", "lab", "allreduce", f"--{option}", value)
    refused(64, "--elements 16777217 is too many for 2 ranks in one process (at most 16777216)", "lab", "allreduce", "--ranks", "2", "--elements", "16777217")


def test_course():
    """docs/lessons.md has every lesson, and what its last table names is there."""
    course, keys = read(f"{SOURCE}/docs/lessons.md"), dtrain("help", "config").stdout
    words = dtrain("help").stdout + re.sub(r".*dtrain (?=lab)", " ", dtrain("lab").stdout)
    for name in re.findall(r"^ +lab ([a-z-]+)", words, re.M):
        check(re.search(rf"dtrain lab {name}\b", course), f"lessons.md: no lab {name}")
    named = re.findall(r"`([^`]*)`", " ".join(line.split("|")[2] for line in course.split("| there | here |")[1].splitlines() if line.count("|") == 3))
    check(len(named) > 30, f"lessons.md: {len(named)} names in the table of what lectures name")
    for name in named:
        if name.startswith(("lab ", "bench ")):
            check(re.search(rf"^ +{name.split(' --')[0]}\b", words, re.M), f"lessons.md: no command {name}")
        elif name.startswith(("scripts/", "configs/")):
            check(os.path.exists(f"{SOURCE}/{name}"), f"lessons.md: no file {name}")
        elif re.match(r"(train|data|distributed)\.|[a-z.]+_[a-z]+$", name) and "." in name:
            check(re.search(rf"^{re.escape(name)}[.\s]", keys, re.M), f"lessons.md: no key {name}")


new_folder()
for test in (test_lr, test_bits, test_shards, test_batch, test_linear, test_server, test_compression, test_stragglers, test_live_line, test_gradtape,
             test_pipeline, test_model_parallel, test_reduce, test_ring, test_allreduce, test_course):
    test()
finish()
