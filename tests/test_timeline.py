"""trace.json: what it says of a window of steps must be possible. usage: DTRAIN=... MPIEXEC=... test_timeline.py CONFIGS"""
import json
import os
import subprocess
import sys
import tempfile

CONFIG = os.path.join(sys.argv[1], "synthetic.json")
SMALL = ["--set", "train.max_steps=12", "--set", "log.every_s=0"]
PARAMETER_SERVER = ["--set", "distributed.strategy=parameter_server"]
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED:", text)


def train(folder, n_ranks, *arguments):
    command = [os.environ["MPIEXEC"], "-n", str(n_ranks), os.environ["DTRAIN"], "--config", CONFIG, "--run", folder, *SMALL, *arguments]
    environment = dict(os.environ, DTRAIN_TIMEOUT="5", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "detect_leaks=0"))
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


class Trace:
    def __init__(self, folder):
        with open(os.path.join(folder, "trace.json")) as file:
            content = json.load(file)
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
        result = train(way, 3, "--set", "trace.steps=4:6", "--set", f"distributed.allreduce={way}", "--set", "distributed.bucket_mb=0")
        trace = Trace(way)
        check(result.returncode == 0, f"{way}: {result.returncode} {result.stderr}")
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
        "sync": PARAMETER_SERVER,
        "async": [*PARAMETER_SERVER, "--set", "distributed.parameter_server.mode=async"],
        "pipeline": ["--set", "distributed.strategy=pipeline"],
    }
    for name, arguments in strategies.items():
        n_ranks = 2 if name == "pipeline" else 3 # it has two blocks
        result = train(name, n_ranks, "--set", "trace.steps=4:6", *arguments)
        check(result.returncode == 0, f"{name}: {result.returncode} {result.stderr}")
        trace = Trace(name)
        check_possible(trace, name)
        check({span["pid"] for span in trace.spans} == set(range(n_ranks)), f"{name}: not every rank is there")
        check(all(4 <= span["args"]["step"] <= 6 for span in trace.spans), f"{name}: other steps")


def test_ends():
    result = train("short", 2, "--set", "trace.steps=10:40")
    check(result.returncode == 0 and Trace("short").steps(1) == [10, 11, 12], "a window that is longer than the run")
    result = train("late", 1, "--set", "trace.steps=13:40")
    check(result.returncode == 0 and not os.path.exists("late/trace.json"), "a window behind the run")
    result = train("none", 1)
    check(result.returncode == 0 and not os.path.exists("none/trace.json"), "no window")
    result = train("killed", 2, "--set", "trace.steps=4:6", "--inject", "kill:rank=1,step=9")
    check(result.returncode != 0 and Trace("killed").steps(1) == [4, 5, 6], "a rank is killed behind the window")
    result = train("meanwhile", 2, "--set", "trace.steps=4:40", "--inject", "nan:rank=1,step=9")
    check(result.returncode == 80 and {span["pid"] for span in Trace("meanwhile").spans} == {0}, "the run fails within the window")
    check(Trace("meanwhile").steps(0)[:5] == [4, 5, 6, 7, 8], "what rank 0 has of a run that failed")


def test_bound():
    result = train("long", 1, "--set", "trace.steps=1:10000", "--set", "train.max_steps=10000", "--set", "train.epochs=1000",
                   "--set", "train.batch.per_rank=1", "--set", "data.train_samples=2000", "--set", "data.test_samples=8")
    rank = Trace("long").other["ranks"][0]
    check(result.returncode == 0 and rank["spans"] == 65536 and rank["lost_spans"] > 0, f"no bound: {rank} {result.stderr}")
    check(f"without the last {rank['lost_spans']:,} spans (" in result.stderr, f"what was lost is not said: {result.stderr}")


def test_bad_windows():
    for text in ("30:10", "0:3", "a", "10", "1:2x", ":", "-1:4", " 1:4", "1:9999999999"):
        result = train("bad", 1, "--set", f"trace.steps=\"{text}\"")
        check(result.returncode == 64 and "trace.steps: expected first:last" in result.stderr, f"{text}: {result.returncode} {result.stderr}")


with tempfile.TemporaryDirectory() as work:
    CONFIG = os.path.abspath(CONFIG)
    os.chdir(work)
    test_window()
    test_every_strategy()
    test_ends()
    test_bound()
    test_bad_windows()
sys.exit(len(failures) > 0)
