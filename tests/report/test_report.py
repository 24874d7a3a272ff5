"""`dtrain report`: its page has the numbers of metrics.jsonl, from a run that ended, stopped, was killed, is under way, or was never one.

usage: DTRAIN=... MPIEXEC=... test_report.py"""
import base64
import fcntl
import html
import json
import math
import os
import re
import shlex
import shutil
import subprocess

import checks
from checks import DTRAIN, MPIEXEC, check, dtrain, finish, new_folder, read, read_json, records, summary, write, write_json
from terminal import Terminal
from tiny import train


def report(*arguments):
    """Its text and what it says on stderr."""
    done = dtrain("report", *arguments)
    return done.stdout, done.stderr


def refused(code, text, *arguments):
    checks.refused(code, "dtrain: " + text, "report", *arguments)


def bare(run):
    """A run's folder with its configuration alone."""
    write(f"{run}/config.json", read("ended/config.json"))


def append(run, *added):
    """Records to its metrics.jsonl."""
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in added))


def tables(page):
    """Caption: rows of numbers, of every figure's tables; figures by their title."""
    found = {}
    for figure in re.findall(r"<figure.*?</figure>", page, re.S):
        title = re.search(r"<h3>(.*?)</h3>", figure)[1]
        for caption, body in re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", figure, re.S):
            found[title, html.unescape(caption)] = [[float(cell) for cell in row.split("<td>")[1:]] for row in body.split("<tr>")[1:]]
    return found


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12)


def same(what, rows, expected, x, y):
    expected = [(record[x], record[y]) for record in expected if record[y] is not None]
    check(len(rows) == len(expected) and all(row[0] == a and near(row[1], b) for row, (a, b) in zip(rows, expected)),
          f"{what}: {len(rows)} rows, {len(expected)} records")


def check_numbers(folder, page):
    found, steps, epochs = tables(page), records(folder, "step"), records(folder, "epoch")
    for title, of_step, of_epoch in (("Loss", "loss", "loss"), ("Accuracy", "accuracy", "accuracy")):
        same(f"{folder} {title}", found[title, "train, a step"], steps, "step", of_step)
        same(f"{folder} {title}, mean", found[title, "train, mean of an epoch"], epochs, "step", f"train_{of_epoch}")
        same(f"{folder} {title}, test", found[title, "test, after an epoch"], epochs, "step", f"test_{of_epoch}")
    same(f"{folder} gradient", found["Gradient norm", "a step"], steps, "step", "grad_norm")
    if len({record["lr"] for record in steps + epochs}) > 1:
        same(f"{folder} rate", found["Learning rate", "a step"], steps, "step", "lr")
    else:
        check(not any(title == "Learning rate" for title, _ in found), f"{folder}: a chart of one rate")
    same(f"{folder} throughput", found["Throughput, samples a second", "a step"], steps, "step", "images_per_s")


def is_whole(page):
    """One file, nothing of elsewhere, no number that is none."""
    return page.endswith("</html>\n") and not re.search(r"(src|href)=(?!.data:)|https?:(?!//www.w3.org)|@import|url\([^#]|[>\s,](nan|inf)\b", page)


def test_ended():
    run = "ended"
    train(run, 2, "distributed.allreduce=ring", "train.schedule.type=cosine")
    test_at_end()
    at_end = read(f"{run}/report.html")
    out, err = report(run)
    page, last = read(f"{run}/report.html"), records(run, "epoch")[-1]
    check(worst_of(at_end) == worst_of(page), "the two ranks found others to be the worst than one does")
    check(err == f"wrote {run}/report.html\n", f"report: {err}")
    p = last["test_accuracy"]
    accuracy = f"{100 * p:.2f} % ± {196 * math.sqrt(p * (1 - p) / 100):.2f} % (95 %, of 100 samples)"
    for text in (accuracy, "done: ran to completion", "45 of 45 steps, 15 an epoch", "20 × 2 = 40", "2 on 1 host", "dtrain --config"):
        check(text in out, f"text without {text!r}: {out}")
        check(text in html.unescape(page), f"page without {text!r}")
    check(out.count("\n") <= 50, f"more than 50 lines: {out}")
    check_wrapped(run, out)
    check(is_whole(page), "the page is not whole")
    check_numbers(run, page)
    check_parts(run, page)
    check_learned(run, page)


def check_wrapped(run, piped):
    """A fact is a line, but where a terminal shows it: there no line is longer than that, and none ends within a word."""
    for columns in (80, 40):
        terminal = Terminal(DTRAIN, "report", run, columns=columns, stderr=subprocess.DEVNULL)
        check(terminal.end() == 0, f"{columns} columns: {terminal.text}")
        shown = terminal.text.replace("\r", "").split("\n\n")[0]
        lines, facts = shown.splitlines(), piped.split("\n\n")[0]
        words = [line[14:].split() for line in lines]
        check(all(len(line) < columns or len(words[i]) == 1 for i, line in enumerate(lines)), f"{columns} columns: {shown}")
        check(shown.split() == facts.split() and len(lines) > facts.count("\n") + 1, f"{columns} columns, not the same words: {shown}")


def worst_of(page):
    return re.findall(r'src="([^"]*)"[^>]*><b>(\d+)</b>, predicted (\d+)<br><small>[0-9.]+ %, no. (\d+)<', page)


def check_learned(run, page):
    """Of the last checkpoint, on the test samples: as many right as eval has."""
    table = re.search(r'<table class="confusion">.*?<tbody>(.*?)</tbody>', page, re.S)[1]
    counts = [[int(cell.split(">")[1].strip() or 0) for cell in row.split("<td")[2:]] for row in table.split("<tr>")[1:]]
    n_right = sum(counts[k][k] for k in range(10))
    check(len(counts) == 10 and all(len(row) == 10 for row in counts) and sum(map(sum, counts)) == 100, f"confusion: {counts}")
    check(n_right == round(100 * summary(run)["test_accuracy"]), f"{n_right} are right, not as the summary has it")
    classes = re.search(r'<table class="classes">.*?<tbody>(.*?)</tbody>', page, re.S)[1]
    for k, row in enumerate(classes.split("<tr>")[1:]):
        _, _, n, precision, recall = row.strip().split("<td>")
        said, true = sum(r[k] for r in counts), sum(counts[k])
        check(int(n) == true and (precision == f"{100 * counts[k][k] / said:.2f} %" if said else precision == "")
              and (recall == f"{100 * counts[k][k] / true:.2f} %" if true else recall == ""), f"class {k}: {row}")
    images = [base64.b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]*)"', page)]
    check(len(images) == 29 and all(image.startswith(b"\x89PNG\r\n") for image in images), f"{len(images)} images, of 25 samples and 4 filters")
    check(len(worst_of(page)) == 25, "not 25 samples")


def check_parts(run, page):
    """Times, traffic, model and configuration, as the files have them."""
    result, start = summary(run), records(run, "run")[-1]
    head, body = re.search(r"milliseconds of a step</caption><thead><tr><th>rank(.*?)</thead><tbody>(.*?)</tbody>", page, re.S).groups()
    phases = head.split("<th>")[1:-1]
    for row, times in zip(body.split("<tr><td>")[1:], result["ranks_ms_per_step"]):
        cells = list(map(float, row.split("<td>")))[1:]
        check(all(abs(cell - times.get(phase, 0)) < 6e-4 for phase, cell in zip(phases, cells)), f"times of {row}")
        check(abs(sum(times.values()) - cells[-1]) < 6e-4, f"the sum of {row}")
    own = [sum(ms for phase, ms in times.items() if phase != "communication") for times in result["ranks_ms_per_step"]]
    check(len(own) == 2 and f"The slowest is rank {own.index(max(own))} (" in page, "the slowest rank is not named")
    sent = f"counted: {start['messages']:g} messages"
    check(start["messages"] > 0 and sent in page and ": equal.</p>" in page, "what was sent is not compared")
    check(f"<td>total<td><td><td>{start['parameters']:,}<td>" in page, "not the number of parameters")
    marked = dict(re.findall(r'<tr class="this"><td>([a-z_]+[.][a-z_.]+)<td>([^<]*)<td>', page))
    check({key: html.unescape(value) for key, value in marked.items()} == {
        "data.train_samples": "600", "data.test_samples": "100", "train.epochs": "3", "train.batch.per_rank": "20",
        "train.schedule.type": '"cosine"', "distributed.allreduce": '"ring"', "log.every_steps": "1"}, f"not what differs from the defaults: {marked}")


def test_at_end():
    """A run writes the page itself: when it ends, and when it fails; unless it shall not."""
    run = "ended"
    page = read(f"{run}/report.html")
    check("done: ran to completion" in page, "no page at the end")
    check_learned(run, page)
    run = "failed"
    train(run, 1, "train.optimizer.lr=1e6", code=80)
    page = read(f"{run}/report.html")
    check(is_whole(page) and "failed (exit code 80): training diverged at step" in page, "no page of a failure")
    check("<code>dtrain report</code> adds" in page and "What it learned" not in page, "a failure has learned something")
    run = "silent"
    train(run, 1, "report=false")
    check(not os.path.exists(f"{run}/report.html"), "a page that nobody wants")


def test_compare():
    runs = ["ended", "again"]
    done = dtrain("report", *runs)
    check(done.stderr == "", f"compare: {done.stderr}")
    for text in (r"A +done +\d+\.\d\d ± ", r"B +killed ", r'\n  distributed\.allreduce +"ring" \| "auto"\n'):
        check(re.search(text, done.stdout), f"compare without {text}: {done.stdout}")
    done = dtrain("report", runs[0], runs[0])
    check(done.stdout.endswith("\n\nthe configurations are equal\n"), f"equal: {done.stdout}")
    _, err = report(*runs, "--html", "both.html")
    page = read("both.html")
    check(is_whole(page) and "<td>distributed.allreduce<td>&quot;ring&quot;<td>&quot;auto&quot;" in page, f"report of two: {err}")
    for run, name in zip(runs, ("A ended", "B again")):
        same(f"{run}, one of two", tables(page)["Accuracy on the test samples", name], records(run, "epoch"), "step", "test_accuracy")


def test_layers_differ():
    """Key by key, as --set names them; whole layers where they are of different kinds, or one run has no such layer."""
    runs = ["ended", "wider"]
    shutil.copytree(*runs)
    config = read_json(f"{runs[1]}/config.json")
    layers = config["model"]["layers"]
    at = next(i for i, layer in enumerate(layers) if layer["type"] == "dense")
    units = layers[at]["units"]
    layers[at]["units"] = 7
    layers.append({"type": "relu"})
    write_json(f"{runs[1]}/config.json", config)
    out = dtrain("report", *runs).stdout
    lines = out[out.index("where the configurations differ"):].splitlines()[1:]
    check([" ".join(line.split()) for line in lines] == [f"model.layers.{at}.units {units} | 7",
                                                         f'model.layers.{len(layers) - 1} - | {{"type": "relu"}}'], f"layers: {lines}")
    report(*runs, "--html", "layers.html")
    page = read("layers.html")
    check(f"<td>model.layers.{at}.units<td>{units}<td>7" in page and "<span class=\"key k1\">B wider</span>" in page, "layers: the page")


def test_again():
    """Stopped, and started again: marked; while it is under way the old summary does not count."""
    run = "again"
    train(run, 1, "train.max_steps=40")
    train(run, 1, resume=True)
    report(run)
    page = read(f"{run}/report.html")
    check(page.count('class="restart"') == 4 and "started again" in page, "no restart is marked")
    check_numbers(run, page)
    append(run, {"type": "run", "step": 90, "started": 1.5})
    check("verdict       killed" in report(run)[0], "a run that is not resumed is not called killed")
    with open(f"{run}/run.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check("verdict       running" in report(run)[0], "a run under way is not running")


def fact(run, name):
    return re.search(rf"^{name} +(.*)", report(run)[0], re.M)[1]


def took(run, seconds):
    """As if the last start had taken so long."""
    write_json(f"{run}/summary.json", {**summary(run), "seconds": seconds})


def test_starts():
    """Steps, epochs, time and start are those of the whole run: one rank, then two, then again after the end."""
    run = "starts"
    train(run, 1, "train.epochs=1")
    started = fact(run, "started")
    took(run, 100.5)
    train(run, 2, resume=True)
    check(fact(run, "progress") == "60 of 60 steps, 15 an epoch", "two numbers of ranks: " + fact(run, "progress"))
    watched = dtrain("report", "--follow", run).stdout
    check(re.search(r"^epoch 3/3  step 60 of 60  \S+ 100 %$", watched, re.M), f"watch: {watched}")
    took(run, 20)
    train(run, 1, "train.epochs=2", resume=True)
    check(fact(run, "progress") == "60 of 60 steps, 30 an epoch", "after the end: " + fact(run, "progress"))
    check([record["epoch"] for record in records(run, "epoch")] == [1, 2, 3], "after the end: an epoch more")
    took(run, 6)
    check(fact(run, "time") == "2:07, over 3 starts", "three starts: " + fact(run, "time"))
    check(fact(run, "started") == started, "the first start")
    # A start that was killed before its first record.
    append(run, {"type": "run", "step": 60, "started": 9e9, "seconds_before": 126.6, "last_step": 60})
    check(fact(run, "time") == "2:07, over 4 starts", "four starts: " + fact(run, "time"))
    compared = dtrain("report", run, run).stdout
    check(re.search(r"^A +killed .* 60 +\d+ +2:07 ", compared, re.M), f"compare: {compared}")


def test_launch():
    """How it was launched is there to be copied: as typed, or where a script stands between, in its plainest form."""
    typed = [DTRAIN, "--config", "tiny.json", "--set", 'data={"format":"synthetic"}', "--set", "train.max_steps=1", "--run"]
    write("between", '#!/bin/sh\nexec "$DTRAIN" --config "$CONFIG" --set train.max_steps=1 --run "$RUN"\n')
    os.chmod("between", 0o755)
    launches = ([*typed, "alone"], [MPIEXEC, "-n", "2", *typed, "two"], [MPIEXEC, "-n", "2", "./between"])
    for launch in launches:
        run = launch[-1].replace("./between", "by script")
        checks.run(*launch, code=0, env={"DTRAIN": DTRAIN, "CONFIG": "tiny.json", "RUN": run})
        again = shlex.split(fact(run, "command"))
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
    out, err = report(run)
    page = read(f"{run}/report.html")
    check("verdict       killed" in out, f"killed: {err}")
    check(re.search("^time +1:02:05$", out, re.M), f"killed: not the time of the last record: {out}")
    check("3 lines of metrics.jsonl are no record" in out, f"killed: nothing of broken lines: {out}")
    check(is_whole(page), "killed: the page is not whole")
    for name in ("metrics.jsonl", "metrics.csv", "run.lock"):
        os.remove(f"{run}/{name}")
    out, err = report(run)
    check(is_whole(read(f"{run}/report.html")), f"only config.json: {err}")
    shutil.rmtree(f"{run}/checkpoints")
    out, err = report(run)
    check("Not shown: there is no checkpoint" in read(f"{run}/report.html"), f"no checkpoint: {err}")


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
    out, err = report(run)
    page = read(f"{run}/report.html")
    check(page.count("<script") == 1, "hostile: the page runs what a file says")
    check("\x1b" not in out and "\u202e" not in out + page, "hostile: the terminal gets what a file says")
    check(is_whole(page), "hostile: the page is not whole")


def test_no_time_passes():
    """Of a trace whose steps take no time, or next to none, the picture has an end too."""
    run = "instant"
    bare(run)
    for dur in (0, 1e-320, 1e-9, 1e12):
        write_json(f"{run}/trace.json", {"traceEvents": [{"cat": "forward", "ph": "X", "ts": 1, "dur": dur, "pid": 0, "args": {"step": 1}}]})
        _, err = report(run)
        page = read(f"{run}/report.html")
        check(is_whole(page) and 1 <= len(re.findall(r'd="M[0-9.]+ 18V', page)) <= 9, f"spans of {dur} µs: {err}")


def test_many():
    """So many ranks and spans that a reader who looks at all of them for each would not be done today; a bounded part is shown."""
    run, n = "many", 80000
    bare(run)
    write_json(f"{run}/summary.json", {"exit_code": 0, "ranks_ms_per_step": [{"forward": 1.5, "communication": i % 7} for i in range(n)]})
    bucket = {"cat": "bucket", "name": "bucket 0", "ph": "X", "dur": 1, "pid": 0, "args": {"step": 1}}
    write_json(f"{run}/trace.json", {"traceEvents": [{"cat": "forward", "ph": "X", "ts": 0, "dur": 1e9, "pid": 0, "args": {"step": 1}}] +
                                     [{**bucket, "ts": i + 1} for i in range(n)]})
    append(run, *({"type": "run", "step": i} for i in range(n // 4)), *({"type": "step", "step": i * n, "loss": 1} for i in (1, 2)))
    _, err = report(run)
    page = read(f"{run}/report.html")
    check(is_whole(page) and len(page) < 5 << 20, f"many: {err}, {len(page)} bytes")
    for text in ("The 64 slowest of 80000 ranks; the numbers have more of them.", "78976 more ranks were faster.",
                 "The first 20000 spans are shown, 60001 more are not.", f"<td>{n / 1000:.3f}<td>{n / 1000:.3f}\n"):
        check(text in page, f"many: no {text}")


def write_long(run):
    bare(run)
    added = [{"type": "run", "step": 0, "config": "long", "world_size": 4}]
    for i in range(1, 100001):
        loss = 2.3 / (1 + i / 500) + (i * 7919 % 1000) / 3000
        added.append({"type": "step", "step": i, "epoch": 1 + i // 100, "loss": loss, "accuracy": 1 - loss / 3, "lr": 1e-3,
                      "images_per_s": 15000 + i % 977})
        if i % 100 == 0:
            added.append({"type": "epoch", "epoch": i // 100, "step": i, "train_loss": loss, "test_loss": loss, "lr": 1e-3,
                          "train_accuracy": 1 - loss / 3, "test_accuracy": 1 - loss / 3, "images_per_s": 15000})
    append(run, *added)


def test_long():
    """Thinned: small, and honest about it."""
    run = "long"
    write_long(run)
    report(run)
    page, losses = read(f"{run}/report.html"), [record["loss"] for record in records(run, "step")]
    check(len(page) < 1 << 20, f"long: {len(page)} bytes")
    rows = tables(page)["Loss", "train, a step"]
    begin = 0
    for last, mean, least, most, n in rows:
        part = losses[begin:begin + int(n)]
        begin += int(n)
        check(last == begin and near(mean, sum(part) / n) and near(least, min(part)) and near(most, max(part)), f"long: the part up to {last}")
    check(begin == len(losses) and len(rows) <= 240, f"long: {begin} steps in {len(rows)} parts")


def test_refused():
    os.makedirs("none")
    for name, text in (("broken", '{"data": '), ("other", '{"data": 3}'), ("nul", "\0")):
        write(f"{name}/config.json", text)
    refused(64, "9 runs, at most 8 fit beside each other (name fewer)", *"abcdefghi", "--html", "x.html")
    refused(64, "--run does not belong to report (see dtrain report --help)", "a", "--run", "b")
    refused(66, "missing: no such folder (name the folder of a run)", "missing")
    refused(66, "none: not the folder of a run, it has no config.json (name one that has)", "none/")
    refused(66, "tiny.json: no such folder (name the folder of a run)", "tiny.json")
    refused(65, "broken/config.json:1:10: the text ends too early (close every quote and bracket)", "broken")
    refused(65, "other/config.json: data: ", "other")
    refused(65, "nul/config.json: a NUL byte (this is no text)", "nul")
    refused(73, "missing/: ", "ended", "--html", "missing/x.html")


new_folder()
test_ended()
test_again()
test_starts()
test_launch()
test_killed()
test_hostile()
test_no_time_passes()
test_many()
test_long()
test_compare()
test_layers_differ()
test_refused()
finish()
