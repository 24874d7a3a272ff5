"""Run folders of other people: what reading one may cost, of memory and of processor time, whatever its files hold, and whose data `report`
reads. A folder that costs too much says so, and never hides the others.

usage: DTRAIN=... MPIEXEC=... test_strangers.py"""
import json
import os
import re
import shutil
import struct
import zlib

from checks import DTRAIN, check, checkpoint_of, dtrain, finish, new_folder, read, read_json, run, summary, write, write_json
from document import Report
from tiny import CONFIG, train

MEMORY_KIB, SECONDS = 400000, 20  # of address space, of which the program itself takes half; of a processor
MIB = 1 << 20
NUMBERS = "[" + "1," * (8 * MIB) + "1]"  # 16 MiB, of which cJSON would make 512 MiB or more


def limited(*arguments, code=0):
    return run("bash", "-c", 'ulimit -v "$0" -t "$1" && shift && exec "$@"', MEMORY_KIB, SECONDS, DTRAIN, *arguments, code=code)


def listed():
    """What `dtrain runs` says of each run."""
    document = json.loads(limited("runs", "runs", "--json", "-").stdout)
    return {row["run"]: row for part in document["parts"] if part["type"] == "table" for row in part["rows"]}


# ---- files that cost many times their size


def add_line(text):
    def add(folder):
        with open(f"{folder}/metrics.jsonl", "a") as file:
            file.write(text + "\n")
    return add


def replace(name, text):
    return lambda folder: write(f"{folder}/{name}", text)


def flight(rank, host="a", n_events=100, collectives=9, step=5):
    events = [{"ns": 1000000 * (100 * i + 40 - rank), "step": i, "bytes": 7, "name": f"event {rank}"} for i in range(step + 1)]
    return json.dumps({"rank": rank, "host": host, "step": step, "collectives_begun": collectives, "collectives_ended": collectives,
                       "silent_ms": 1, "events": [{"step": 0}] * n_events + events})


def fail(folder, n_ranks):
    """As if so many ranks had ended with an error."""
    first, *others = read(f"{folder}/metrics.jsonl").splitlines()
    write(f"{folder}/metrics.jsonl", "\n".join([json.dumps({**json.loads(first), "world_size": n_ranks}), *others, ""]))
    write_json(f"{folder}/summary.json", {**summary(folder), "exit_code": 70})


def add_flights(folder):
    """So many records, of which each may be, that all of them at once are too much."""
    fail(folder, 500)
    for rank in range(500):
        write(f"{folder}/flight-{rank}.json", flight(rank, n_events=5000))


def link_flights(folder):
    fail(folder, 500)
    write(f"{folder}/flight-0.json", flight(0))
    for rank in range(1, 500):
        os.symlink("flight-0.json", f"{folder}/flight-{rank}.json")


def one_large_flight(folder):
    fail(folder, 1)
    write(f"{folder}/flight-0.json", '{"rank": 0, "events": ' + NUMBERS + "}")


# What is in the folder, its state then, and what the report says of it.
COSTLY = {
    "a line of numbers": (add_line('{"type":"audit","x":' + NUMBERS + "}"), "done", "1 line of metrics.jsonl is no record"),
    "a line of objects": (add_line('{"type":"step","step":9e9,"x":[' + '{"a":[]},' * (3 * MIB) + "0]}"), "done", "1 line of metrics.jsonl is no record"),
    "a line of text": (add_line('{"type":"run","step":9e9,"command":"' + "x" * 2 * MIB + '"}'), "done", "1 line of metrics.jsonl is no record"),
    "the summary": (replace("summary.json", '{"exit_code":0,"x":' + NUMBERS + "}"), "killed", "killed (no result was written)"),
    "the status": (replace("status.json", '{"exit_code":0,"error":"x","x":' + NUMBERS + "}"), "done", "done"),
    "the trace": (replace("trace.json", '{"traceEvents":' + NUMBERS + "}"), "done", "done"),
    "the flight records": (add_flights, "failed", "No rank was behind"),
    "links to a flight record": (link_flights, "failed", "No rank was behind"),
    "a flight record": (one_large_flight, "failed", "failed"),
    "the configuration": (replace("config.json", '{"model": ' + NUMBERS + "}"), "damaged", None),
}


def test_costly_files():
    for name, (spoil, state, text) in COSTLY.items():
        folder = "runs/" + name.replace(" ", "-")
        shutil.copytree("mine", folder)
        spoil(folder)
        rows = listed()
        check({run: row["state"] for run, row in rows.items()} == {"runs/good": "done", folder: state}, f"{name}: {rows}")
        done = limited("report", folder, code=0 if text else 65)
        check((text or "too large: ") in done.stdout + done.stderr, f"{name}: no {text}: {done}")
        page = read(f"{folder}/report.html") if text else ""
        check(("trace.json is larger than 8 MiB" in page) == (name == "the trace"), f"{name}: what the page says of a trace")
        check(text is None or ("event 0" in page) == (name in ("the flight records", "links to a flight record")), f"{name}: events of rank 0")
        check("links" not in name or "event 0" in page and "event 1" not in page, f"{name}: a link is followed")
        shutil.rmtree(folder)


def test_no_memory():
    """A run that takes more memory than there is."""
    shutil.copytree("mine", "runs/much")
    os.truncate("runs/much/metrics.jsonl", MEMORY_KIB << 10)
    rows = listed()
    check(rows["runs/much"]["state"] == "damaged" and (rows["runs/good"]["state"], rows["runs/good"]["epochs"]) == ("done", 3), f"no memory: {rows}")
    shutil.rmtree("runs/much")


def test_resume_drops_long_lines():
    """A resumed run does not keep what readers leave out."""
    shutil.copytree("mine", "resumed")
    add_line('{"type":"step","step":1,"x":[' + "1," * MIB + "1]}")("resumed")
    train("resumed", 1, "train.epochs=4", resume=True)
    check(os.path.getsize("resumed/metrics.jsonl") < MIB, "a long line is kept")


def test_flights():
    """The first ranks are shown, and the one that is behind; times are since the first rank of the host, shown or not."""
    shutil.copytree("mine", "flights")
    fail("flights", 30)
    for rank in range(30):
        write(f"flights/flight-{rank}.json", flight(rank, "ab"[rank % 2], collectives=8 if rank == 25 else 9, step=4 if rank == 25 else 5))
    report = Report("flights")
    report.has("Rank 25 (b) was behind: in step 4 it had begun 8 collectives")
    rows = {(row["step"], row["rank"]): row["events"] for row in report.rows("Last events")}
    check(set(rows) == {(step, rank) for step in (3, 4, 5) for rank in [*range(16), 25]}, f"flights: {sorted(rows)}")
    for rank, last in ((0, 28), (1, 29)):  # of the host, by the numbers of the ranks
        check(rows[5, rank] == f"+{last - rank}.000 event {rank} (7 bytes)", f"flights: {rows[5, rank]}")
    check(rows[5, 25] == "has not entered it" and rows[4, 25] == "+4.000 event 25 (7 bytes)", f"flights: {rows[5, 25]}, {rows[4, 25]}")


# ---- test sets that are generated


def change_config(folder, n_samples, size):
    """In the configuration, and in that of the checkpoint, as somebody could who works its checksum out again."""
    config = read_json(f"{folder}/config.json")
    config["data"]["test_samples"] = n_samples
    config["model"]["input"] = [1, size, size]
    write_json(f"{folder}/config.json", config)
    path = checkpoint_of(folder, 1)
    content = read(path, "rb")
    n = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:n])
    header["__metadata__"].update(config=json.dumps(config), header_crc="00000000")
    text = json.dumps(header, separators=(",", ":"))
    text = struct.pack("<Q", len(text) + -len(text) % 8) + text.encode() + b" " * (-len(text) % 8)
    crc = b'"header_crc":"%08x"' % zlib.crc32(text)
    write(path, text.replace(b'"header_crc":"00000000"', crc, 1) + content[n:])


def test_generated():
    layers = [{"type": "conv2d", "filters": 1, "kernel": 1}, {"type": "global_avg_pool"}, {"type": "flatten"}, {"type": "dense", "units": 2}]
    model = {"input": [1, 8, 8], "layers": layers}
    write_json("pooled.json", {**CONFIG, "data": {"format": "synthetic", "train_samples": 20, "test_samples": 20}, "model": model, "train": {"batch": {"per_rank": 20}, "epochs": 1}})
    dtrain("--config", "pooled.json", "--run", "pooled")
    for name, n_samples, size, shown in (("all that a report takes", 100000, 8, True), ("one more", 100001, 8, False),
                                         ("the most", 2147483647, 8, False), ("fewer, but larger", 17000, 128, False)):
        shutil.copytree("pooled", "generated")
        change_config("generated", n_samples, size)
        done = limited("report", "generated")
        page = read("generated/report.html")
        check(("Confusion" in done.stdout) == shown, f"{name}: {done}")
        for text in (page, done.stderr):
            check((f"generates {n_samples} test samples of " in text and "a report at most 100000" in text) != shown, f"{name}: {done}")
        shutil.rmtree("generated")


# ---- whose data are read


def picture(value):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([value] * 12)) * 12
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 12, 12, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_whose_data():
    for split in ("train", "test"):
        for name in range(10):
            for i in range(4):
                write(f"private/{split}/kind{name}/{i}.png", picture(20 * name + i))
    train("theirs", 1, 'data={"format": "images", "dir": "private"}', "train.batch.per_rank=10", "report=false")
    report = Report("theirs")
    check("data:image/png" in read("theirs/report.html") and report.stderr == "wrote theirs/report.html\n", f"one's own run: {report.stderr}")
    names = [f"kind{name}" for name in range(10)]
    check(report.parts["Confusion"]["rows"] == names == [row["class"] for row in report.rows("Classes")]
          and {row["true class"] for row in report.rows("Worst test samples")} <= set(names), "no names of classes")
    if os.geteuid() != 0:
        print("not root: no run of another user is tried")
        return
    for other in ("theirs", checkpoint_of("theirs", 12)):
        os.chown(other, 54321, 54321)
        done = dtrain("report", "theirs")
        page = read("theirs/report.html")
        check("data:image/png" not in page, f"{other}: images of a folder that nobody named")
        for text in (page, done.stderr):
            check("the run is another user" in text, f"{other}: {done}")
            check("(add --data private)" in text, f"{other}: no cure: {done}")
        dtrain("report", "theirs", "--data", "private")
        check("data:image/png" in read("theirs/report.html"), f"{other}: not even data that are named")
        os.chown(other, 0, 0)
    os.chown("pooled", 54321, 54321)
    done = dtrain("report", "pooled")
    check("Confusion" in done.stdout and "not shown" not in done.stderr, f"generated data are nobody's: {done}")


new_folder()
train("mine", 1)
shutil.copytree("mine", "runs/good")
test_costly_files()
test_no_memory()
test_resume_drops_long_lines()
test_flights()
test_generated()
test_whose_data()
finish()
