"""`dtrain report`: its JSON has the numbers of the run's files, from a run that ended, stopped, was killed, is under way, or was never one; its
page and its text show the same; with --follow it goes on until the run ends, and leaves the terminal as it was.

usage: DTRAIN=... MPIEXEC=... test_report.py"""
import base64
import fcntl
import json
import math
import os
import re
import shlex
import shutil
import signal

import checks
from checks import DTRAIN, MPIEXEC, check, dtrain, finish, new_folder, read, read_json, records, summary, write, write_json
from document import Report
from terminal import Terminal
from tiny import train


def refused(code, text, *arguments):
    checks.refused(code, "dtrain: " + text, "report", *arguments)


def bare(run):
    """A run's folder with its configuration alone."""
    write(f"{run}/config.json", read("ended/config.json"))


def append(run, *added):
    """Records to its metrics.jsonl."""
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in added))


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def same(what, points, expected, x, y, scale=1):
    expected = [(record[x], scale * record[y]) for record in expected if record[y] is not None]
    points = [point for point in points if point[1] is not None]
    check(len(points) == len(expected) and all(a == c and near(b, d) for (a, b), (c, d) in zip(points, expected)), f"{what}: {points}, not {expected}")


def check_curves(run, report):
    steps, epochs = records(run, "step"), records(run, "epoch")
    for title, name, scale in (("Loss", "loss", 1), ("Accuracy", "accuracy", 100)):
        lines = report.lines(title)
        same(f"{run} {title}", lines["train, a step"], steps, "step", name, scale)
        same(f"{run} {title}, mean", lines["train, mean of an epoch"], epochs, "step", f"train_{name}", scale)
        same(f"{run} {title}, test", lines["test, after an epoch"], epochs, "step", f"test_{name}", scale)
    same(f"{run} gradient", report.lines("Gradient norm")["steps"], steps, "step", "grad_norm")
    if len({record["lr"] for record in steps + epochs}) > 1:
        same(f"{run} rate", report.lines("Learning rate")["steps"], steps, "step", "lr")
    else:
        check("Learning rate" not in report.parts, f"{run}: a chart of one rate")
    same(f"{run} throughput", report.lines("Throughput")["an epoch"], epochs, "step" if report.parts["Throughput"]["x"] == "step" else "epoch", "images_per_s")


def is_whole(page):
    """One file, nothing of elsewhere, no number that is none."""
    return page.endswith("</html>\n") and not re.search(r"(src|href)=(?!.data:)|https?:(?!//www.w3.org)|@import|url\([^#]|[>\s,](nan|inf)\b", page)


def learned(page):
    return page[page.index("What it learned"):page.index("<h2>Model</h2>")]


def test_ended():
    run = "ended"
    train(run, 2, "distributed.allreduce=ring", "train.schedule.type=cosine")
    at_end = read(f"{run}/report.html")
    report = Report(run)
    page, text, last, result = read(f"{run}/report.html"), dtrain("report", run).stdout, records(run, "epoch")[-1], summary(run)
    check(learned(at_end) == learned(page), "the two ranks learned other things than one finds")
    check(report.stderr == f"wrote {run}/report.html\n", f"report: {report.stderr}")
    figures, p = report.parts["Result"]["figures"], last["test_accuracy"]
    check(figures["test accuracy"]["value"] == p and near(figures["test loss"]["value"], last["test_loss"]), f"result: {figures}")
    check(figures["test accuracy"]["hint"] == f"± {196 * math.sqrt(p * (1 - p) / 100):.2f} % with 95 % confidence, 100 samples", f"margin: {figures}")
    check(figures["state"]["value"] == "done" and figures["time"]["value"] == result["seconds"], f"result: {figures}")
    check(figures["progress"]["value"] == "epoch 3 of 3, step 45 of 45 (15 an epoch)", f"progress: {figures}")
    training = report.parts["Training"]["figures"]
    check([(training[name]["value"], training[name]["hint"]) for name in ("ranks", "batch")] == [(2, "on 1 host"), (40, "20 × 2")], f"training: {training}")
    check(training["learning rate"]["hint"].startswith("0.001 × 2 (linear), cosine, ") and "dtrain --config" in training["command"]["value"], f"training: {training}")
    for shown in (f"{100 * p:.2f} % (± ", "Confusion", "epoch  step  train loss", "dense 10"):
        check(shown in text, f"text without {shown!r}: {text}")
    check(text.index("test accuracy") < text.index("Training") < text.index("Loss") < text.index("Configuration"), "the order of the text")
    check(is_whole(page), "the page is not whole")
    check_curves(run, report)
    for row, record in zip(report.rows("Epochs"), records(run, "epoch"), strict=True):
        check(all(near(row[name], record[key]) for name, key in (("epoch", "epoch"), ("step", "step"), ("train loss", "train_loss"), ("test loss", "test_loss"),
                                                                 ("test accuracy", "test_accuracy"), ("lr", "lr"), ("images/s", "images_per_s"))), f"{row}, {record}")
    table = dtrain("report", run, "--csv", "-").stdout.splitlines()
    check(table[0].startswith("epoch,step,train loss,") and len(table) == 4, f"csv: {table}")
    check_parts(run, report)
    check_learned(run, report, page)


def check_learned(run, report, page):
    """Of the last checkpoint, on the test samples: as many right as eval has."""
    counts = report.parts["Confusion"]["values"]
    n_right = sum(counts[k][k] for k in range(10))
    check(len(counts) == 10 and all(len(row) == 10 for row in counts) and sum(map(sum, counts)) == 100, f"confusion: {counts}")
    check(n_right == round(100 * summary(run)["test_accuracy"]), f"{n_right} are right, not as the summary has it")
    for k, row in enumerate(report.rows("Classes")):
        said, true = sum(r[k] for r in counts), sum(counts[k])
        check((row["class"], row["samples"]) == (str(k), true) and (row["precision"] is None if said == 0 else near(row["precision"], counts[k][k] / said))
              and near(row["recall"], counts[k][k] / true), f"class {k}: {row}")
    worst = report.rows("Worst test samples")
    losses = [row["loss"] for row in worst]
    check(len(worst) == 25 and losses == sorted(losses, reverse=True), f"worst: {worst}")
    images = [base64.b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]*)"', page)]
    check(len(images) == 29 and all(image.startswith(b"\x89PNG\r\n") for image in images), f"{len(images)} images, of 25 samples and 4 filters")


def check_parts(run, report):
    """Times, traffic, model and configuration, as the files have them."""
    result, start = summary(run), records(run, "run")[-1]
    for row, times in zip(report.rows("Time of a step, by phase"), result["ranks_ms_per_step"], strict=True):
        check(all(near(row[phase], times.get(phase, 0)) for phase in ("data", "forward", "backward", "communication", "update")), f"times of {row}")
        check(near(sum(times.values()), row["total"]), f"the sum of {row}")
    lanes = report.parts["Time of a step"]
    check(lanes["lanes"] == ["rank 0", "rank 1"] and lanes["kinds"] == ["data", "forward", "backward", "communication", "update"], f"lanes: {lanes}")
    for rank, times in enumerate(result["ranks_ms_per_step"]):
        check(near(max(box["end"] for box in lanes["boxes"] if box["lane"] == rank), sum(times.values())), f"the lane of rank {rank}")
    own = [sum(ms for phase, ms in times.items() if phase != "communication") for times in result["ranks_ms_per_step"]]
    report.has(f"The slowest is rank {own.index(max(own))} (", "scaled by the number of ranks (one batch each): 0.001 × 2 = 0.002", "1 epoch = 15 steps (600 samples)",
               "GFLOP/s, all ranks together (dense count; work on zeros is skipped)")
    sent = report.parts["Sent in a step by the busiest rank"]["figures"]
    check(sent["messages"]["value"] == start["messages"] and sent["sent"]["value"] == start["bytes_sent"]
          and {figure["hint"] for figure in sent.values()} == {"equal to the formula"}, f"sent: {sent}")
    total = report.rows("Blocks")[-1]
    check(total["block"] == "total" and total["parameters"] == start["parameters"], f"total: {total}")
    changed = {row["key"]: row["value"] for row in report.rows("Configuration")}
    check(changed == {"data.train_samples": "600", "data.test_samples": "100", "train.epochs": "3", "train.batch.per_rank": "20",
                      "train.schedule.type": '"cosine"', "distributed.allreduce": '"ring"', "log.every_steps": "1"}, f"not what differs from the defaults: {changed}")
    check(len(report.rows("All keys of the configuration")) > 30, "not all keys")


def test_at_end():
    """A run writes the page itself: when it ends, and when it fails; unless it shall not."""
    train("failed", 1, "train.optimizer.lr=1e6", code=80)
    page = read("failed/report.html")
    check(is_whole(page) and "failed (exit code 80): training diverged at step" in page, "no page of a failure")
    check("<code>dtrain report</code> adds" in page and "What it learned" not in page, "a failure has learned something")
    check(Report("failed").document["verdict"] == "FAIL", "no verdict on a failure")
    train("silent", 1, "report=false")
    check(not os.path.exists("silent/report.html"), "a page that nobody wants")


def test_compare():
    """Results, keys that differ, and curves over each other; legends say what differs, or else the folder."""
    runs = ["ended", "again"]
    report = Report(*runs, "--html", "both.html")
    check(report.stderr == "wrote both.html\n" and is_whole(read("both.html")), f"page: {report.stderr}")
    rows = report.rows("Results")
    check([(row["run"], row["state"]) for row in rows] == [("A type=cosine min_lr=0 allreduce=ring", "done"), ("B type=constant min_lr=- allreduce=auto", "killed")],
          f"results: {rows}")
    check({"key": "distributed.allreduce", "A": '"ring"', "B": '"auto"'} in report.rows("Where the configurations differ"), "no differing key")
    check(report.parts["Accuracy on the test samples"]["x"] == "epoch", "tests are not over epochs")
    for run, points in zip(runs, report.lines("Accuracy on the test samples").values(), strict=True):
        same(f"{run}, one of two", points, records(run, "epoch"), "epoch", "test_accuracy", 100)
    report = Report(runs[0], runs[0])
    check(report.rows("Where the configurations differ") == [] and report.parts["Where the configurations differ"]["caption"] == "The configurations are equal.", "equal")
    check([row["run"] for row in report.rows("Results")] == ["A ended", "B ended"], "names of equal runs")


def test_validation_apart():
    """A loss on test samples and one on validation samples are not in one chart."""
    train("validated", 1, "data.validation=0.1", "train.optimizer.lr=0.01")
    shutil.copytree("ended", "plain")
    report = Report("plain", "validated")
    test, validation = ({name: len(points) for name, points in report.lines(f"Loss on the {which} samples").items()} for which in ("test", "validation"))
    check(len(test) == 1 and len(validation) == 1 and test != validation, f"{test}, {validation}")
    same("validation", *report.lines("Loss on the validation samples").values(), records("validated", "epoch"), "epoch", "validation_loss")
    for run, rate in (("one", 0.001), ("two", 0.01)):
        write(f"{run}/config.json", json.dumps({**read_json("ended/config.json"), "train": {"optimizer": {"lr": rate}}}))
    check([row["run"] for row in Report("one", "two").rows("Results")] == ["A lr=0.001", "B lr=0.01"], "legends")


def test_layers_differ():
    """Key by key, as --set names them; whole layers where they are of different kinds, or one run has no such layer."""
    shutil.copytree("ended", "wider")
    config = read_json("wider/config.json")
    layers = config["model"]["layers"]
    at = next(i for i, layer in enumerate(layers) if layer["type"] == "dense")
    units = layers[at]["units"]
    layers[at]["units"] = 7
    layers.append({"type": "relu"})
    write_json("wider/config.json", config)
    check(Report("ended", "wider").rows("Where the configurations differ") == [
        {"key": f"model.layers.{at}.units", "A": str(units), "B": "7"}, {"key": f"model.layers.{len(layers) - 1}", "A": None, "B": '{"type": "relu"}'}], "layers")


def test_again():
    """Stopped, and started again: marked; while it is under way the old summary does not count."""
    run = "again"
    train(run, 1, "train.max_steps=40")
    train(run, 1, resume=True)
    report = Report(run)
    check([(mark["x"], mark["name"]) for mark in report.parts["Loss"]["marks"]] == [(40, "started again")], "no restart is marked")
    check_curves(run, report)
    append(run, {"type": "run", "step": 90, "started": 1.5})
    check(Report(run).document["summary"] == "killed (no result was written)", "a run that is not resumed is not called killed")
    with open(f"{run}/run.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check(Report(run).figure("Result", "state") == "running", "a run under way is not running")


def took(run, seconds):
    """As if the last start had taken so long."""
    write_json(f"{run}/summary.json", {**summary(run), "seconds": seconds})


def test_starts():
    """Steps, epochs, time and start are those of the whole run: one rank, then two, then again after the end."""
    run = "starts"
    train(run, 1, "train.epochs=1")
    started = Report(run).figure("Training", "started")
    took(run, 100.5)
    train(run, 2, resume=True)
    check(Report(run).figure("Result", "progress") == "epoch 3 of 3, step 60 of 60 (15 an epoch)", "two numbers of ranks")
    took(run, 20)
    train(run, 1, "train.epochs=2", resume=True)
    check(Report(run).figure("Result", "progress") == "epoch 3 of 3, step 60 of 60 (30 an epoch)", "after the end")
    check([record["epoch"] for record in records(run, "epoch")] == [1, 2, 3], "after the end: an epoch more")
    took(run, 6)
    time = Report(run).parts["Result"]["figures"]["time"]
    check(near(time["value"], 126.5) and time["hint"] == "over 3 starts", f"three starts: {time}")
    check(Report(run).figure("Training", "started") == started, "the first start")
    # A start that was killed before its first record.
    append(run, {"type": "run", "step": 60, "started": 9e9, "seconds_before": 126.6, "last_step": 60})
    time = Report(run).parts["Result"]["figures"]["time"]
    check(time["value"] == 126.6 and time["hint"] == "over 4 starts", f"four starts: {time}")
    check(Report(run, run).rows("Results")[0]["time"] == 126.6, "several")


def test_speed():
    """Throughput is that between records: no running mean of the epoch, nothing of an evaluation, of a start its own batch. A few norms are no
    curve."""
    run = "speed"
    bare(run)
    append(run, {"type": "run", "step": 0, "global_batch": 40})
    for i in range(400):
        append(run, {"type": "step", "step": i + 1, "epoch": 1 + i // 100, "seconds": 0.01 * i + 0.5 * (i // 100), "images_per_s": 3e5 / (1 + i % 100), "loss": 1})
    append(run, {"type": "run", "step": 400, "global_batch": 80})
    for i in range(400, 800):
        append(run, {"type": "step", "step": i + 1, "epoch": 1 + i // 100, "seconds": 0.01 * (i - 400), "loss": 1, "grad_norm": 1 if i > 797 else None})
    report = Report(run)
    points = report.lines("Throughput")["steps"]
    check(all(near(y, 4000 if x <= 400 else 8000) for x, y in points if not 400 < x < 410) and 50 < len(points) <= 100, f"throughput: {points}")
    check("Gradient norm" not in report.parts, "a curve of two points")


def test_launch():
    """How it was launched is there to be copied: as typed, or where a script stands between, in its plainest form."""
    typed = [DTRAIN, "--config", "tiny.json", "--set", 'data={"format":"synthetic"}', "--set", "train.max_steps=1", "--run"]
    write("between", '#!/bin/sh\nexec "$DTRAIN" --config "$CONFIG" --set train.max_steps=1 --run "$RUN"\n')
    os.chmod("between", 0o755)
    launches = ([*typed, "alone"], [MPIEXEC, "-n", "2", *typed, "two"], [MPIEXEC, "-n", "2", "./between"])
    for launch in launches:
        run = launch[-1].replace("./between", "by script")
        checks.run(*launch, code=0, env={"DTRAIN": DTRAIN, "CONFIG": "tiny.json", "RUN": run})
        again = shlex.split(Report(run).figure("Training", "command"))
        expected = ["mpirun", "-np", "2", *typed[:3], *typed[5:], run] if launch is launches[-1] else launch
        if launch is launches[1] and os.path.basename(again[0]).startswith("mpiexec"):
            again[0] = MPIEXEC  # the tests' launcher starts the real one (tests/CMakeLists.txt)
        check(again == expected, f"launched by {launch}: {again}")


def test_killed():
    """As a kill leaves it: no summary, half a line at the end, and what a disk may do in between."""
    run = "killed"
    shutil.copytree("ended", run)
    os.remove(f"{run}/summary.json")
    with open(f"{run}/metrics.jsonl", "ab") as file:
        file.write(b'{"type":"step","step":50,"seconds":3725.2}\n{"type":"step","step":1e999}\n\xff\xfe\x00\n[[[[\n{"type":"step","step":91,"loss":"x"}\n{"type":"step","step":95,"lo')
    report = Report(run)
    check(report.figure("Result", "state") == "killed" and report.figure("Result", "time") == 3725.2, "killed: not the time of the last record")
    report.has("3 lines of metrics.jsonl are no record")
    check(is_whole(read(f"{run}/report.html")), "killed: the page is not whole")
    for name in ("metrics.jsonl", "metrics.csv", "run.lock"):
        os.remove(f"{run}/{name}")
    Report(run)
    check(is_whole(read(f"{run}/report.html")), "only config.json")
    shutil.rmtree(f"{run}/checkpoints")
    Report(run).has("Not shown: there is no checkpoint")


def test_hostile():
    run = "hostile"
    bare(run)
    evil = "<script>alert(1)</script>\u202e\x1b[2J&\"'"
    append(run, {"type": "run", "step": 0, "config": evil, "command": evil, "world_size": 1e300, "ranks": [1, None, {"host": 3}],
                 "test_samples": -1, "started": 1e30, "injected": [1, evil]},
           *({"type": "step", "step": i * 1e12, "loss": [1e-300, 1e30, 0, -1e30][i % 4], "lr": 1e29, "accuracy": i} for i in range(20)),
           {"type": "epoch", "step": 5, "test_loss": 3, "test_accuracy": 7, "staleness": ["x", 1e300, -4]})
    write_json(f"{run}/summary.json", {"exit_code": 80, "started": 1e30, "error": evil, "signal": 1e9,
                                       "ranks_ms_per_step": [{"data": 1e30}, 4, {"data": -1}]})
    out, page = dtrain("report", run).stdout, read(f"{run}/report.html")
    check(page.count("<script") == 1, "hostile: the page runs what a file says")
    check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out) and "\u202e" not in page, "hostile: the terminal gets what a file says")
    check(is_whole(page), "hostile: the page is not whole")
    check(evil in Report(run).figure("Training", "command"), "hostile: the JSON")


def test_no_time_passes():
    """Of a trace whose steps take no time, or next to none, the picture has an end too."""
    bare("instant")
    for dur in (0, 1e-320, 1e-9, 1e12):
        write_json("instant/trace.json", {"traceEvents": [{"cat": "forward", "ph": "X", "ts": 1, "dur": dur, "pid": 0, "args": {"step": 1}}]})
        report = Report("instant")
        check(is_whole(read("instant/report.html")) and len(report.parts["Timeline of some steps"]["boxes"]) == 1, f"spans of {dur} µs")


def test_many():
    """So many ranks and spans that a reader who looks at all of them for each would not be done today; a bounded part is shown."""
    run, n = "many", 80000
    bare(run)
    write_json(f"{run}/summary.json", {"exit_code": 0, "ranks_ms_per_step": [{"forward": 1.5, "communication": i % 7} for i in range(n)]})
    bucket = {"cat": "bucket", "name": "bucket 0", "ph": "X", "dur": 1, "pid": 0, "args": {"step": 1}}
    write_json(f"{run}/trace.json", {"traceEvents": [{"cat": "forward", "ph": "X", "ts": 0, "dur": 1e9, "pid": 0, "args": {"step": 1}}] +
                                     [{**bucket, "ts": i + 1} for i in range(n)]})
    append(run, *({"type": "run", "step": i} for i in range(n // 4)), *({"type": "step", "step": i * n, "loss": 1} for i in (1, 2)))
    report = Report(run)
    page = read(f"{run}/report.html")
    check(is_whole(page) and len(page) < 3 << 20, f"many: {len(page)} bytes")
    for title, text in (("Time of a step", "The 64 slowest of 80000 ranks."), ("Time of a step, by phase", "78976 more ranks were faster."),
                        ("Timeline of some steps", "75001 more spans are not shown.")):
        check(text in report.parts[title]["caption"], f"many: no {text}")


def test_long():
    """All steps in the JSON, a small page, and a table of some epochs on the terminal."""
    run, added = "long", [{"type": "run", "step": 0, "config": "long", "world_size": 4}]
    bare(run)
    for i in range(1, 100001):
        loss = 2.3 / (1 + i / 500) + (i * 7919 % 1000) / 3000
        added.append({"type": "step", "step": i, "epoch": 1 + i // 100, "loss": loss, "accuracy": 1 - loss / 3, "lr": 1e-3})
        if i % 100 == 0:
            added.append({"type": "epoch", "epoch": i // 100, "step": i, "train_loss": loss, "test_loss": loss, "lr": 1e-3,
                          "train_accuracy": 1 - loss / 3, "test_accuracy": 1 - loss / 3, "images_per_s": 15000})
    append(run, *added)
    report = Report(run)
    check(os.path.getsize(f"{run}/report.html") < 1 << 20, "long: the page")
    same("long", report.lines("Loss")["train, a step"], records(run, "step"), "step", "loss")
    check([row["epoch"] for row in report.rows("Some epochs")][::11] == [1, 1000] and len(report.rows("Epochs")) == 1000, "long: epochs")
    check(dtrain("report", run).stdout.count("\n") < 140, "long: the text")


# ---- a run under way


def going(run):
    """As if it were under way, with 1,500 steps to do: holds its lock."""
    shutil.copytree("ended", run)
    os.remove(f"{run}/summary.json")
    config, metrics = read_json(f"{run}/config.json"), read(f"{run}/metrics.jsonl")
    config["train"]["epochs"] = 100
    write_json(f"{run}/config.json", config)
    os.truncate(f"{run}/run.lock", 0)
    write(f"{run}/metrics.jsonl", metrics.replace('"last_step":45,', '"last_step":1500,'))
    lock = open(f"{run}/run.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_follows():
    run = "going"
    lock = going(run)
    terminal = Terminal(DTRAIN, "report", run, "--follow")
    check(terminal.wait_for(r"step 45 of 1500"), "no first screen")
    append(run, {"type": "step", "step": 1000, "epoch": 1, "loss": 0.5, "accuracy": 0.5, "lr": 0.1, "images_per_s": 10})
    check(terminal.wait_for(r"(?s)step 1000 of 1500.*66.67 %.*33:20"), "it does not follow")
    check("step 1000 of 1500" in read(f"{run}/report.html"), "it does not write the page again")
    with open(f"{run}/run.lock", "a") as file: # between two records
        file.write("\nstep 1100\n")
    check(terminal.wait_for(r"step 1100 of 1500"), "it does not advance between two records")
    terminal.resize(30, 4)
    check(terminal.wait_for(r"\x1b\[H([^\n]{1,60}\n){3}\x1b\[J"), "it does not fit a smaller window")
    os.write(terminal.master, b"q")
    code = terminal.end()
    check(code == 0 and terminal.same, f"q: {code}, the terminal is {'as it was' if terminal.same else 'changed'}")
    shown = terminal.text
    check(shown.index("\x1b[?1049h") < shown.rindex("\x1b[J") < shown.rindex("\x1b[?1049l"), "the screen is not given back")
    check("step 1100" in shown[shown.rindex("\x1b[?1049l"):], "the last screen does not stay")
    terminal = Terminal(DTRAIN, "report", "--follow", run)
    terminal.wait_for(r"step 1100")
    terminal.process.send_signal(signal.SIGINT)
    code = terminal.end()
    check(code == 0 and terminal.same, f"SIGINT: {code}, the terminal is {'as it was' if terminal.same else 'changed'}")
    check("step 1100" in dtrain("report", run, "--follow").stdout, "without a terminal it does not print once")
    terminal = Terminal(DTRAIN, "report", run, "--follow")
    terminal.wait_for(r"running")
    lock.close()
    code = terminal.end()
    check(code == 0 and terminal.same and "killed (no result was written)" in terminal.text and "Confusion" in terminal.text, f"killed: {code}")


def test_refused():
    os.makedirs("none")
    for name, text in (("broken", '{"data": '), ("other", '{"data": 3}'), ("nul", "\0")):
        write(f"{name}/config.json", text)
    refused(64, "report: --follow shows one run (name one)", "a", "b", "--follow")
    refused(64, "9 runs, at most 8 fit beside each other (name fewer)", *"abcdefghi")
    refused(64, "--run does not belong to report (write dtrain report b)", "a", "--run", "b")
    refused(66, "missing: no such folder (name the folder of a run)", "missing")
    refused(66, "none: not the folder of a run, it has no config.json (name one that has)", "none/")
    refused(66, "tiny.json: no such folder (name the folder of a run)", "tiny.json")
    refused(65, "broken/config.json:1:10: the text ends too early (close every quote and bracket)", "broken")
    refused(65, "other/config.json: data: ", "other")
    refused(65, "nul/config.json: a NUL byte (this is no text)", "nul")
    refused(73, "missing/: ", "ended", "--html", "missing/x.html")
    write("mine.html", "my own")
    refused(73, "mine.html: exists and is no page of dtrain", "ended", "--html", "mine.html")


new_folder()
test_ended()
test_at_end()
test_again()
test_starts()
test_speed()
test_launch()
test_killed()
test_hostile()
test_no_time_passes()
test_many()
test_long()
test_compare()
test_validation_apart()
test_layers_differ()
test_follows()
test_refused()
finish()
