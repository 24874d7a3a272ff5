"""trace.json: what it says of a window of steps must be possible. usage: DTRAIN=... MPIEXEC=... test_timeline.py"""
import json
import os
import re

from checks import SOURCE, check, dtrain, finish, new_folder, read_json, sets, write, write_json
from document import Report

PARAMETER_SERVER = "distributed.strategy=parameter_server"


def train(folder, n_ranks, *settings, inject=None, code=0):
    settings = ("train.max_steps=12", "log.every_s=0", *settings)
    return dtrain("--config", f"{SOURCE}/configs/synthetic.json", "--run", folder, *sets(*settings), *["--inject", inject] * bool(inject),
                  ranks=n_ranks, code=code, env={"DTRAIN_TIMEOUT": "5"})


class Trace:
    def __init__(self, folder):
        content = read_json(f"{folder}/trace.json")
        self.spans = [event for event in content["traceEvents"] if event["ph"] == "X"]
        self.lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in content["traceEvents"] if e["name"] == "thread_name"}
        self.other = content["otherData"]

    def steps(self, rank):
        return sorted({span["args"]["step"] for span in self.spans if span["pid"] == rank})

    def named(self, rank, step):
        return {span["name"] for span in self.spans if span["pid"] == rank and span["args"]["step"] == step}

    def of_lane(self, rank, name):
        return [span for span in self.spans if span["pid"] == rank and self.lanes[rank, span["tid"]] == name]


def end(span):
    return span["ts"] + span["dur"]


def check_possible(trace, name):
    """Nothing before the first, what computes does one thing at a time, and clocks of one host differ by no more than was said."""
    check(abs(min(span["ts"] for span in trace.spans)) < 1e-3, f"{name}: times do not begin at 0")
    for rank in {span["pid"] for span in trace.spans}:
        compute = sorted(trace.of_lane(rank, "compute"), key=lambda span: span["ts"])
        check(all(end(a) <= b["ts"] + 0.5 for a, b in zip(compute, compute[1:])), f"{name}: rank {rank} computes two things at once")
    for rank in trace.other["ranks"]:
        check(abs(rank["offset_us"]) <= rank["error_us"] + 0.1, f"{name}: {rank} has one clock with rank 0")
        check(rank["spans"] == sum(span["pid"] == rank["rank"] for span in trace.spans) and rank["lost_spans"] == 0, f"{name}: {rank}")


def check_sums(trace, n_ranks, name):
    """No sum is there before every rank has begun to send its part."""
    slack = 2 * max(rank["error_us"] for rank in trace.other["ranks"]) + 1
    buckets = [span for span in trace.spans if span["cat"] == "bucket"]
    check(len(buckets) > 0, f"{name}: no buckets")
    for step, bucket in {(span["args"]["step"], span["name"]) for span in buckets}:
        group = [span for span in buckets if (span["args"]["step"], span["name"]) == (step, bucket)]
        check(len(group) == n_ranks, f"{name}: step {step}, {bucket}: {len(group)} ranks")
        check(min(map(end, group)) + slack >= max(span["ts"] for span in group), f"{name}: step {step}, {bucket}: there before it was sent")


def test_window():
    parts = {"gather", "loss", "wait", "conv1 forward", "conv1 backward", "bucket 0", "bucket 1"}
    for way in ("ring", "shared_memory"):
        result = train(way, 3, "trace.steps=4:6", f"distributed.allreduce={way}", "distributed.bucket_mb=0")
        trace = Trace(way)
        check(f"trace of steps 4 to 6: {way}/trace.json (" in result.stderr, f"{way}: not said: {result.stderr}")
        check((trace.other["first_step"], trace.other["last_step"]) == (4, 6), f"{way}: {trace.other}")
        for rank in range(3):
            check(trace.steps(rank) == [4, 5, 6], f"{way}: rank {rank} has steps {trace.steps(rank)}")
            for step in (4, 5, 6):
                missing = parts - trace.named(rank, step)
                check(not missing, f"{way}: rank {rank}, step {step}: no {sorted(missing)}")
        updated = {span["args"]["step"] for span in trace.spans if span["name"] == "update"} # by a rank that had nothing else to do
        check(updated == {4, 5, 6}, f"{way}: updates in steps {sorted(updated)}")
        check_possible(trace, way)
        check_sums(trace, 3, way)


def test_every_strategy():
    strategies = {
        "sync": [PARAMETER_SERVER],
        "async": [PARAMETER_SERVER, "distributed.parameter_server.mode=async"],
        "pipeline": ["distributed.strategy=pipeline"],
    }
    for name, settings in strategies.items():
        n_ranks = 2 if name == "pipeline" else 3 # it has two blocks
        train(name, n_ranks, "trace.steps=4:6", *settings)
        trace = Trace(name)
        check_possible(trace, name)
        check({span["pid"] for span in trace.spans} == set(range(n_ranks)), f"{name}: not every rank is there")
        check(all(4 <= span["args"]["step"] <= 6 for span in trace.spans), f"{name}: other steps")


def test_ends():
    train("short", 2, "trace.steps=10:40")
    check(Trace("short").steps(1) == [10, 11, 12], "a window that is longer than the run")
    train("late", 1, "trace.steps=13:40")
    check(not os.path.exists("late/trace.json"), "a window behind the run")
    train("none", 1)
    check(not os.path.exists("none/trace.json"), "no window")
    result = train("killed", 2, "trace.steps=4:6", inject="kill:rank=1,step=9", code=None)
    check(result.returncode != 0 and Trace("killed").steps(1) == [4, 5, 6], "a rank is killed behind the window")
    train("meanwhile", 2, "trace.steps=4:40", inject="nan:rank=1,step=9", code=80)
    check({span["pid"] for span in Trace("meanwhile").spans} == {0}, "the run fails within the window")
    check(Trace("meanwhile").steps(0)[:5] == [4, 5, 6, 7, 8], "what rank 0 has of a run that failed")


def test_bound():
    result = train("long", 1, "trace.steps=1:10000", "train.max_steps=10000", "train.epochs=1000", "train.batch.per_rank=1",
                   "data.train_samples=2000", "data.test_samples=8")
    rank = Trace("long").other["ranks"][0]
    check(rank["spans"] == 65536 and rank["lost_spans"] > 0, f"no bound: {rank} {result.stderr}")
    check(f"without the last {rank['lost_spans']:,} spans (" in result.stderr, f"what was lost is not said: {result.stderr}")


def hidden_share(trace):
    """Of the time that some bucket of a rank was on its way, the share in which the rank computed."""
    sent = hidden = 0
    for rank in range(len(trace.other["ranks"])):
        computes = [span for span in trace.of_lane(rank, "compute")]
        covered = 0
        for bucket in sorted((s for s in trace.spans if s["pid"] == rank and s["cat"] == "bucket"), key=lambda span: span["ts"]):
            begin, covered = max(bucket["ts"], covered), max(end(bucket), covered)
            sent += max(covered - begin, 0)
            hidden += sum(max(0, min(end(span), covered) - max(span["ts"], begin)) for span in computes)
    return 100 * hidden / sent


def test_report():
    trace, report = Trace("ring"), Report("ring")
    lanes = report.parts["Timeline of some steps"]
    check(lanes["caption"] == "Steps 5 to 6.", f"the lanes: {lanes['caption']}")
    n_buckets = len({span["name"] for span in trace.spans if span["cat"] == "bucket"})
    check(lanes["lanes"] == [name for rank in range(3) for name in (f"rank {rank}", "wait", *(f"bucket {i}" for i in range(n_buckets)))], f"{lanes['lanes']}")
    of_time = report.parts["Time of a step"]["kinds"]
    check(lanes["kinds"][:5] == of_time, f"other colours than of the phases: {lanes['kinds']}, {of_time}")
    shown = [span for span in trace.spans if span["args"]["step"] in (5, 6)]
    first = min(span["ts"] for span in shown)
    boxes = sorted((round(box["begin"], 3), round(box["end"], 3), box["label"]) for box in lanes["boxes"])
    expected = sorted((round((span["ts"] - first) / 1e3, 3), round((end(span) - first) / 1e3, 3), span["name"]) for span in shown)
    check(len(boxes) == len(expected) and all(abs(a[0] - b[0]) < 0.002 and abs(a[1] - b[1]) < 0.002 for a, b in zip(boxes, expected)),
          f"{len(boxes)} boxes of {len(shown)} spans")
    said = re.search(r"(\d+) % of communication overlapped with computation", report.prose)
    check(said is not None and abs(int(said[1]) - hidden_share(trace)) <= 0.6, f"overlap: {said} and {hidden_share(trace)}")


def test_hidden():
    """Both ranks compute for 100 us; buckets travel from 50 to 80 and from 70 to 150: 50 of 100 us are hidden."""
    spans = []
    for rank in (0, 1):
        for name, kind, begin, last in (("fc1 backward", "backward", 0, 100), ("bucket 0", "bucket", 50, 80), ("bucket 1", "bucket", 70, 150)):
            spans.append({"name": name, "cat": kind, "ph": "X", "ts": begin, "dur": last - begin, "pid": rank, "tid": 0, "args": {"step": 1}})
    write_json("none/trace.json", {"traceEvents": spans})
    Report("none").has("50 % of communication overlapped")


def test_bad_traces():
    span = {"name": "fc1 forward", "cat": "forward", "ph": "X", "ts": 0, "dur": 1, "pid": 0, "tid": 1, "args": {"step": 1}}
    bad = ["", "{", "[]", "null", '{"traceEvents": 5}', json.dumps({"traceEvents": [1, None, {}, {"ph": "X"}]})]
    for change in ({"ts": -1}, {"ts": 1e300}, {"dur": "x"}, {"pid": 1e6}, {"pid": -1}, {"cat": "<b>"}, {"args": {"step": 0}}, {"args": 1},
                   {"cat": "bucket", "name": "bucket 999"}, {"cat": "bucket", "name": "bucket -1"}):
        bad.append(json.dumps({"traceEvents": [{**span, **change}]}))
    for text in bad:
        write("none/trace.json", text)
        check("Timeline of some steps" not in Report("none").parts, f"lanes of {text[:100]}")
    write_json("none/trace.json", {"traceEvents": [{**span, "args": {"step": step}, "pid": rank} for step in (1, 999999999) for rank in (0, 100000)]})
    check(len(Report("none").parts["Timeline of some steps"]["boxes"]) == 1, "steps and ranks far apart")
    write_json("none/trace.json", {"traceEvents": [{**span, "name": "<script>"}, {**span, "ts": 1, "name": "b"}]})
    check([box["label"] for box in Report("none").parts["Timeline of some steps"]["boxes"]] == ["<script>", "b"], "a strange name")


def test_bad_windows():
    for text in ("30:10", "0:3", "a", "10", "1:2x", ":", "-1:4", " 1:4", "1:9999999999"):
        result = train("bad", 1, f"trace.steps=\"{text}\"", code=64)
        check("trace.steps: expected first:last" in result.stderr, f"{text}: {result.stderr}")


new_folder()
test_window()
test_every_strategy()
test_ends()
test_bound()
test_report()
test_hidden()
test_bad_traces()
test_bad_windows()
finish()
