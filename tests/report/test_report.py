"""`dtrain report`: its page has the numbers of metrics.jsonl, from a run that ended, stopped, was killed, is under way, or was never one.

usage: test_report.py DTRAIN MPIEXEC, in the folder of the sources"""
import base64
import fcntl
import html
import json
import math
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

CONFIG = {"data": {"format": "synthetic", "train_samples": 600, "test_samples": 100},
          "model": {"input": [1, 12, 12], "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"}, {"type": "flatten"},
                                                     {"type": "dense", "units": 10}]},
          "train": {"epochs": 3, "batch": {"per_rank": 20}}, "log": {"every_steps": 1}}
wrong = []


def check(what, true):
    if not true:
        wrong.append(what)


def train(dtrain, mpiexec, folder, ranks, *arguments):
    """A run in folder; returns its exit code."""
    config = os.path.join(os.path.dirname(folder), "tiny.json")
    with open(config, "w") as file:
        json.dump(CONFIG, file)
    launch = [mpiexec, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run([*launch, dtrain, "--config", config, "--run", folder, *arguments], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=120).returncode


def report(dtrain, *arguments):
    done = subprocess.run([dtrain, "report", *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def refused(dtrain, code, text, *arguments):
    """One line, nothing on stdout."""
    got, out, err = report(dtrain, *arguments)
    check(f"report {arguments}: {got}, not {code}: {err}", got == code)
    check(f"report {arguments}: says {err!r} and {out!r}", err.startswith(f"dtrain: {text}") and err.count("\n") == 1 and out == "")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def records(folder, kind):
    return [record for record in map(json.loads, read(f"{folder}/metrics.jsonl").splitlines()) if record["type"] == kind]


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
    check(f"{what}: {len(rows)} rows, {len(expected)} records",
          len(rows) == len(expected) and all(row[0] == a and near(row[1], b) for row, (a, b) in zip(rows, expected)))


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
        check(f"{folder}: a chart of one rate", not any(title == "Learning rate" for title, _ in found))
    same(f"{folder} throughput", found["Throughput, samples a second", "a step"], steps, "step", "images_per_s")


def is_whole(page):
    """One file, nothing of elsewhere, no number that is none."""
    return page.endswith("</html>\n") and not re.search(r"(src|href)=(?!.data:)|https?:(?!//www.w3.org)|@import|url\([^#]|[>\s,](nan|inf)\b", page)


def test_ended(dtrain, mpiexec, top):
    run = f"{top}/ended"
    check("a run fails", train(dtrain, mpiexec, run, 2, "--set", "distributed.allreduce=ring", "--set", "train.schedule.type=cosine") == 0)
    test_at_end(dtrain, mpiexec, top)
    at_end = read(f"{run}/report.html")
    code, out, err = report(dtrain, run)
    page, last = read(f"{run}/report.html"), records(run, "epoch")[-1]
    check("the two ranks found others to be the worst than one does", worst_of(at_end) == worst_of(page))
    check(f"report: {code} {err}", code == 0 and err == f"wrote {run}/report.html\n")
    p = last["test_accuracy"]
    accuracy = f"{100 * p:.2f} % ± {196 * math.sqrt(p * (1 - p) / 100):.2f} % (95 %, of 100 samples)"
    for text in (accuracy, "done: ran to completion", "45 of 45 steps, 15 an epoch", "20 × 2 = 40", "2 on 1 host", "dtrain --config"):
        check(f"text without {text!r}: {out}", text in out)
        check(f"page without {text!r}", text in html.unescape(page))
    check(f"more than 50 lines: {out}", out.count("\n") <= 50)
    check_wrapped(dtrain, run, out)
    check("the page is not whole", is_whole(page))
    check_numbers(run, page)
    check_parts(run, page)
    check_learned(dtrain, run, page)


def check_wrapped(dtrain, run, piped):
    """A fact is a line, but where a terminal shows it: there no line is longer than that, and none ends within a word."""
    for columns in (80, 40):
        terminal, stdout = pty.openpty()
        fcntl.ioctl(stdout, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        subprocess.run([dtrain, "report", run], stdout=stdout, stderr=subprocess.DEVNULL, check=True, timeout=120)
        shown = os.read(terminal, 1 << 16).decode().replace("\r", "").split("\n\n")[0]
        os.close(stdout)
        os.close(terminal)
        lines, facts = shown.splitlines(), piped.split("\n\n")[0]
        words = [line[14:].split() for line in lines]
        check(f"{columns} columns: {shown}", all(len(line) < columns or len(words[i]) == 1 for i, line in enumerate(lines)))
        check(f"{columns} columns, not the same words: {shown}", shown.split() == facts.split() and len(lines) > facts.count("\n") + 1)


def worst_of(page):
    return re.findall(r'src="([^"]*)"[^>]*><b>(\d+)</b>, predicted (\d+)<br><small>[0-9.]+ %, no. (\d+)<', page)


def check_learned(dtrain, run, page):
    """Of the last checkpoint, on the test samples: as many right as eval has."""
    table = re.search(r'<table class="confusion">.*?<tbody>(.*?)</tbody>', page, re.S)[1]
    counts = [[int(cell.split(">")[1].strip() or 0) for cell in row.split("<td")[2:]] for row in table.split("<tr>")[1:]]
    n_right = sum(counts[k][k] for k in range(10))
    check(f"confusion: {counts}", len(counts) == 10 and all(len(row) == 10 for row in counts) and sum(map(sum, counts)) == 100)
    check(f"{n_right} are right, not as the summary has it", n_right == round(100 * json.loads(read(f"{run}/summary.json"))["test_accuracy"]))
    classes = re.search(r'<table class="classes">.*?<tbody>(.*?)</tbody>', page, re.S)[1]
    for k, row in enumerate(classes.split("<tr>")[1:]):
        _, _, n, precision, recall = row.strip().split("<td>")
        said, true = sum(r[k] for r in counts), sum(counts[k])
        check(f"class {k}: {row}", int(n) == true and (precision == f"{100 * counts[k][k] / said:.2f} %" if said else precision == "")
              and (recall == f"{100 * counts[k][k] / true:.2f} %" if true else recall == ""))
    images = [base64.b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]*)"', page)]
    check(f"{len(images)} images, of 25 samples and 4 filters", len(images) == 29 and all(image.startswith(b"\x89PNG\r\n") for image in images))
    check("not 25 samples", len(worst_of(page)) == 25)


def check_parts(run, page):
    """Times, traffic, model and configuration, as the files have them."""
    summary, start = json.loads(read(f"{run}/summary.json")), records(run, "run")[-1]
    head, body = re.search(r"milliseconds of a step</caption><thead><tr><th>rank(.*?)</thead><tbody>(.*?)</tbody>", page, re.S).groups()
    phases = head.split("<th>")[1:-1]
    for row, times in zip(body.split("<tr><td>")[1:], summary["ranks_ms_per_step"]):
        cells = list(map(float, row.split("<td>")))[1:]
        check(f"times of {row}", all(abs(cell - times.get(phase, 0)) < 6e-4 for phase, cell in zip(phases, cells)))
        check(f"the sum of {row}", abs(sum(times.values()) - cells[-1]) < 6e-4)
    own = [sum(ms for phase, ms in times.items() if phase != "communication") for times in summary["ranks_ms_per_step"]]
    check("the slowest rank is not named", len(own) == 2 and f"The slowest is rank {own.index(max(own))} (" in page)
    sent = f"counted: {start['messages']:g} messages"
    check("what was sent is not compared", start["messages"] > 0 and sent in page and ": equal.</p>" in page)
    check("not the number of parameters", f"<td>total<td><td><td>{start['parameters']:,}<td>" in page)
    marked = dict(re.findall(r'<tr class="this"><td>([a-z_]+[.][a-z_.]+)<td>([^<]*)<td>', page))
    check(f"not what differs from the defaults: {marked}", {key: html.unescape(value) for key, value in marked.items()} == {
        "data.train_samples": "600", "data.test_samples": "100", "train.epochs": "3", "train.batch.per_rank": "20",
        "train.schedule.type": '"cosine"', "distributed.allreduce": '"ring"', "log.every_steps": "1"})


def test_at_end(dtrain, mpiexec, top):
    """A run writes the page itself: when it ends, and when it fails; unless it shall not."""
    run = f"{top}/ended"
    page = read(f"{run}/report.html")
    check("no page at the end", "done: ran to completion" in page)
    check_learned(dtrain, run, page)
    run = f"{top}/failed"
    check("it does not diverge", train(dtrain, mpiexec, run, 1, "--set", "train.optimizer.lr=1e6") == 80)
    page = read(f"{run}/report.html")
    check("no page of a failure", is_whole(page) and "failed (exit code 80): training diverged at step" in page)
    check("a failure has learned something", "<code>dtrain report</code> adds" in page and "What it learned" not in page)
    run = f"{top}/silent"
    check("a run fails", train(dtrain, mpiexec, run, 1, "--set", "report=false") == 0)
    check("a page that nobody wants", not os.path.exists(f"{run}/report.html"))


def test_compare(dtrain, top):
    runs = [f"{top}/ended", f"{top}/again"]
    done = subprocess.run([dtrain, "compare", *runs], capture_output=True, text=True)
    check(f"compare: {done.stderr}", done.returncode == 0 and done.stderr == "")
    for text in (r"A +done +\d+\.\d\d ± ", r"B +killed ", r'\n  distributed\.allreduce +"ring" \| "auto"\n'):
        check(f"compare without {text}: {done.stdout}", re.search(text, done.stdout))
    done = subprocess.run([dtrain, "compare", runs[0], runs[0]], capture_output=True, text=True)
    check(f"equal: {done.stdout}", done.returncode == 0 and done.stdout.endswith("\n\nthe configurations are equal\n"))
    code, _, err = report(dtrain, *runs, "--html", f"{top}/both.html")
    page = read(f"{top}/both.html")
    check(f"report of two: {code} {err}", code == 0 and is_whole(page) and "<td>distributed.allreduce<td>&quot;ring&quot;<td>&quot;auto&quot;" in page)
    for run, name in zip(runs, ("A ended", "B again")):
        same(f"{run}, one of two", tables(page)["Accuracy on the test samples", name], records(run, "epoch"), "step", "test_accuracy")


def test_layers_differ(dtrain, top):
    """Key by key, as --set names them; whole layers where they are of different kinds, or one run has no such layer."""
    runs = [f"{top}/ended", f"{top}/wider"]
    shutil.copytree(*runs)
    config = json.loads(read(f"{runs[1]}/config.json"))
    layers = config["model"]["layers"]
    at = next(i for i, layer in enumerate(layers) if layer["type"] == "dense")
    units = layers[at]["units"]
    layers[at]["units"] = 7
    layers.append({"type": "relu"})
    with open(f"{runs[1]}/config.json", "w") as file:
        json.dump(config, file)
    out = subprocess.run([dtrain, "compare", *runs], capture_output=True, text=True).stdout
    lines = out[out.index("where the configurations differ"):].splitlines()[1:]
    check(f"layers: {lines}", [" ".join(line.split()) for line in lines] == [f"model.layers.{at}.units {units} | 7",
                                                                            f'model.layers.{len(layers) - 1} - | {{"type": "relu"}}'])
    report(dtrain, *runs, "--html", f"{top}/layers.html")
    page = read(f"{top}/layers.html")
    check("layers: the page", f"<td>model.layers.{at}.units<td>{units}<td>7" in page and "<span class=\"key k1\">B wider</span>" in page)


def test_again(dtrain, mpiexec, top):
    """Stopped, and started again: marked; while it is under way the old summary does not count."""
    run = f"{top}/again"
    check("not stopped", train(dtrain, mpiexec, run, 1, "--set", "train.max_steps=40") == 0)
    check("not resumed", train(dtrain, mpiexec, run, 1, "--resume") == 0)
    report(dtrain, run)
    page = read(f"{run}/report.html")
    check("no restart is marked", page.count('class="restart"') == 4 and "started again" in page)
    check_numbers(run, page)
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"type": "run", "step": 90, "started": 1.5}) + "\n")
    check("a run that is not resumed is not called killed", "verdict       killed" in report(dtrain, run)[1])
    with open(f"{run}/run.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check("a run under way is not running", "verdict       running" in report(dtrain, run)[1])


def fact(dtrain, run, name):
    return re.search(rf"^{name} +(.*)", report(dtrain, run)[1], re.M)[1]


def took(run, seconds):
    """As if the last start had taken so long."""
    summary = json.loads(read(f"{run}/summary.json"))
    with open(f"{run}/summary.json", "w") as file:
        json.dump({**summary, "seconds": seconds}, file)


def test_starts(dtrain, mpiexec, top):
    """Steps, epochs, time and start are those of the whole run: one rank, then two, then again after the end."""
    run = f"{top}/starts"
    check("a run fails", train(dtrain, mpiexec, run, 1, "--set", "train.epochs=1") == 0)
    started = fact(dtrain, run, "started")
    took(run, 100.5)
    check("not resumed", train(dtrain, mpiexec, run, 2, "--resume") == 0)
    check("two numbers of ranks: " + fact(dtrain, run, "progress"), fact(dtrain, run, "progress") == "60 of 60 steps, 15 an epoch")
    watched = subprocess.run([dtrain, "watch", run], capture_output=True, text=True).stdout
    check(f"watch: {watched}", re.search(r"^epoch 3/3  step 60 of 60  \S+ 100 %$", watched, re.M))
    took(run, 20)
    check("not resumed after its end", train(dtrain, mpiexec, run, 1, "--resume", "--set", "train.epochs=2") == 0)
    check("after the end: " + fact(dtrain, run, "progress"), fact(dtrain, run, "progress") == "60 of 60 steps, 30 an epoch")
    check("after the end: an epoch more", [record["epoch"] for record in records(run, "epoch")] == [1, 2, 3])
    took(run, 6)
    check("three starts: " + fact(dtrain, run, "time"), fact(dtrain, run, "time") == "2:07, over 3 starts")
    check("the first start", fact(dtrain, run, "started") == started)
    with open(f"{run}/metrics.jsonl", "a") as file:  # a start that was killed before its first record
        file.write(json.dumps({"type": "run", "step": 60, "started": 9e9, "seconds_before": 126.6, "last_step": 60}) + "\n")
    check("four starts: " + fact(dtrain, run, "time"), fact(dtrain, run, "time") == "2:07, over 4 starts")
    compared = subprocess.run([dtrain, "compare", run, run], capture_output=True, text=True).stdout
    check(f"compare: {compared}", re.search(r"^A +killed .* 60 +\d+ +2:07 ", compared, re.M))


def test_launch(dtrain, mpiexec, top):
    """How it was launched is there to be copied: as typed, or where a script stands between, in its plainest form."""
    typed = [dtrain, "--config", f"{top}/tiny.json", "--set", 'data={"format":"synthetic"}', "--set", "train.max_steps=1", "--run"]
    with open(f"{top}/between", "w") as file:
        file.write('#!/bin/sh\nexec "$DTRAIN" --config "$CONFIG" --set train.max_steps=1 --run "$RUN"\n')
    os.chmod(f"{top}/between", 0o755)
    launches = ([*typed, f"{top}/alone"], [mpiexec, "-n", "2", *typed, f"{top}/two"], [mpiexec, "-n", "2", f"{top}/between"])
    for launch in launches:
        run = launch[-1].replace("between", "by script")
        subprocess.run(launch, check=True, capture_output=True, env={**os.environ, "DTRAIN": dtrain, "CONFIG": f"{top}/tiny.json", "RUN": run})
        again = shlex.split(fact(dtrain, run, "command"))
        expected = ["mpirun", "-np", "2", *typed[:3], *typed[5:], run] if launch is launches[-1] else launch
        if launch is launches[1] and os.path.basename(again[0]).startswith("mpiexec"):
            again[0] = mpiexec  # the tests' launcher starts the real one (tests/CMakeLists.txt)
        check(f"launched by {launch}: {again}", again == expected)


def test_killed(dtrain, mpiexec, top):
    """As a kill leaves it: no summary, half a line at the end, and what a disk may do in between."""
    run = f"{top}/killed"
    shutil.copytree(f"{top}/ended", run)
    os.remove(f"{run}/summary.json")
    with open(f"{run}/metrics.jsonl", "ab") as file:
        file.write(b'{"type":"step","step":50,"seconds":3725.2}\n{"type":"step","step":1e999}\n\xff\xfe\x00\n[[[[\n{"type":"step","step":91,"loss":"x"}\n{"type":"step","step":95,"lo')
    code, out, err = report(dtrain, run)
    page = read(f"{run}/report.html")
    check(f"killed: {code} {err}", code == 0 and "verdict       killed" in out)
    check(f"killed: not the time of the last record: {out}", re.search("^time +1:02:05$", out, re.M))
    check(f"killed: nothing of broken lines: {out}", "3 lines of metrics.jsonl are no record" in out)
    check("killed: the page is not whole", is_whole(page))
    for name in ("metrics.jsonl", "metrics.csv", "run.lock"):
        os.remove(f"{run}/{name}")
    code, out, err = report(dtrain, run)
    check(f"only config.json: {code} {err}", code == 0 and is_whole(read(f"{run}/report.html")))
    shutil.rmtree(f"{run}/checkpoints")
    code, out, err = report(dtrain, run)
    check(f"no checkpoint: {code} {err}", code == 0 and "Not shown: there is no checkpoint" in read(f"{run}/report.html"))


def test_hostile(dtrain, top):
    run = f"{top}/hostile"
    os.makedirs(run)
    shutil.copy(f"{top}/ended/config.json", run)
    evil = "<script>alert(1)</script>\u202e\x1b[2J&\"'"
    with open(f"{run}/metrics.jsonl", "w") as file:
        file.write(json.dumps({"type": "run", "step": 0, "config": evil, "command": evil, "world_size": 1e300, "ranks": [1, None, {"host": 3}],
                               "test_samples": -1, "started": 1e30, "injected": [1, evil]}) + "\n")
        for i in range(20):
            file.write(json.dumps({"type": "step", "step": i * 1e12, "loss": [1e-300, 1e30, 0, -1e30][i % 4], "lr": 1e29, "accuracy": i}) + "\n")
        file.write(json.dumps({"type": "epoch", "step": 5, "test_loss": 3, "test_accuracy": 7, "staleness": ["x", 1e300, -4]}) + "\n")
    with open(f"{run}/summary.json", "w") as file:
        file.write(json.dumps({"exit_code": 80, "started": 1e30, "error": evil, "signal": 1e9, "ranks_ms_per_step": [{"data": 1e30}, 4, {"data": -1}]}))
    code, out, err = report(dtrain, run)
    page = read(f"{run}/report.html")
    check(f"hostile: {code} {err}", code == 0)
    check("hostile: the page runs what a file says", page.count("<script") == 1)
    check("hostile: the terminal gets what a file says", "\x1b" not in out and "\u202e" not in out + page)
    check("hostile: the page is not whole", is_whole(page))


def test_no_time_passes(dtrain, top):
    """Of a trace whose steps take no time, or next to none, the picture has an end too."""
    run = f"{top}/instant"
    os.makedirs(run)
    shutil.copy(f"{top}/ended/config.json", run)
    for dur in (0, 1e-320, 1e-9, 1e12):
        with open(f"{run}/trace.json", "w") as file:
            json.dump({"traceEvents": [{"cat": "forward", "ph": "X", "ts": 1, "dur": dur, "pid": 0, "args": {"step": 1}}]}, file)
        code, _, err = report(dtrain, run)
        page = read(f"{run}/report.html")
        check(f"spans of {dur} µs: {code} {err}", code == 0 and is_whole(page) and 1 <= len(re.findall(r'd="M[0-9.]+ 18V', page)) <= 9)


def test_many(dtrain, top):
    """So many ranks and spans that a reader who looks at all of them for each would not be done today; a bounded part is shown."""
    run, n = f"{top}/many", 200000
    os.makedirs(run)
    shutil.copy(f"{top}/ended/config.json", run)
    with open(f"{run}/summary.json", "w") as file:
        json.dump({"exit_code": 0, "ranks_ms_per_step": [{"forward": 1.5, "communication": i % 7} for i in range(n)]}, file)
    bucket = {"cat": "bucket", "name": "bucket 0", "ph": "X", "dur": 1, "pid": 0, "args": {"step": 1}}
    with open(f"{run}/trace.json", "w") as file:
        json.dump({"traceEvents": [{"cat": "forward", "ph": "X", "ts": 0, "dur": 1e9, "pid": 0, "args": {"step": 1}}]
                   + [{**bucket, "ts": i + 1} for i in range(n)]}, file)
    with open(f"{run}/metrics.jsonl", "w") as file:
        file.write("".join(json.dumps({"type": "run", "step": i}) + "\n" for i in range(n // 4)))
        file.write("".join(json.dumps({"type": "step", "step": i * n, "loss": 1}) + "\n" for i in (1, 2)))
    code, _, err = report(dtrain, run)
    page = read(f"{run}/report.html")
    check(f"many: {code} {err}, {len(page)} bytes", code == 0 and is_whole(page) and len(page) < 5 << 20)
    for text in ("The 64 slowest of 200000 ranks; the numbers have more of them.", "198976 more ranks were faster.",
                 "The first 20000 spans are shown, 180001 more are not.", f"<td>{n / 1000:.3f}<td>{n / 1000:.3f}\n"):
        check(f"many: no {text}", text in page)


def write_long(top, run):
    os.makedirs(run)
    shutil.copy(f"{top}/ended/config.json", run)
    with open(f"{run}/metrics.jsonl", "w") as file:
        file.write(json.dumps({"type": "run", "step": 0, "config": "long", "world_size": 4}) + "\n")
        for i in range(1, 100001):
            loss = 2.3 / (1 + i / 500) + (i * 7919 % 1000) / 3000
            file.write(json.dumps({"type": "step", "step": i, "epoch": 1 + i // 100, "loss": loss, "accuracy": 1 - loss / 3, "lr": 1e-3,
                                   "images_per_s": 15000 + i % 977}) + "\n")
            if i % 100 == 0:
                file.write(json.dumps({"type": "epoch", "epoch": i // 100, "step": i, "train_loss": loss, "test_loss": loss, "lr": 1e-3,
                                       "train_accuracy": 1 - loss / 3, "test_accuracy": 1 - loss / 3, "images_per_s": 15000}) + "\n")


def test_long(dtrain, top):
    """Thinned: small, and honest about it."""
    run = f"{top}/long"
    write_long(top, run)
    check("long: fails", report(dtrain, run)[0] == 0)
    page, losses = read(f"{run}/report.html"), [record["loss"] for record in records(run, "step")]
    check(f"long: {len(page)} bytes", len(page) < 1 << 20)
    rows = tables(page)["Loss", "train, a step"]
    begin = 0
    for last, mean, least, most, n in rows:
        part = losses[begin:begin + int(n)]
        begin += int(n)
        check(f"long: the part up to {last}", last == begin and near(mean, sum(part) / n) and near(least, min(part)) and near(most, max(part)))
    check(f"long: {begin} steps in {len(rows)} parts", begin == len(losses) and len(rows) <= 240)


def test_refused(dtrain, top):
    os.makedirs(f"{top}/none")
    for name, text in (("broken", '{"data": '), ("other", '{"data": 3}'), ("nul", "\0")):
        os.makedirs(f"{top}/{name}")
        with open(f"{top}/{name}/config.json", "w") as file:
            file.write(text)
    refused(dtrain, 64, "report: a page of several runs needs a name (add --html FILE)", "a", "b")
    refused(dtrain, 64, "9 runs, at most 8 fit beside each other (name fewer)", *"abcdefghi", "--html", "x.html")
    refused(dtrain, 64, "--run does not belong to report (see dtrain --help)", "a", "--run", "b")
    refused(dtrain, 66, f"{top}/missing: no such folder (name the folder of a run)", f"{top}/missing")
    refused(dtrain, 66, f"{top}/none: not the folder of a run, it has no config.json (name one that has)", f"{top}/none/")
    refused(dtrain, 66, f"{top}/tiny.json: no such folder (name the folder of a run)", f"{top}/tiny.json")
    refused(dtrain, 65, f"{top}/broken/config.json:1:10: the text ends too early (close every quote and bracket)", f"{top}/broken")
    refused(dtrain, 65, f"{top}/other/config.json: data: ", f"{top}/other")
    refused(dtrain, 65, f"{top}/nul/config.json: a NUL byte (this is no text)", f"{top}/nul")
    code, _, err = report(dtrain, f"{top}/ended", "--html", f"{top}/missing/x.html")
    check(f"a page that cannot be written: {code} {err}", code == 73 and err.startswith("dtrain: ") and err.count("\n") == 1)


def main():
    dtrain, mpiexec = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="dtrain-test-report-") as top:
        test_ended(dtrain, mpiexec, top)
        test_again(dtrain, mpiexec, top)
        test_starts(dtrain, mpiexec, top)
        test_launch(dtrain, mpiexec, top)
        test_killed(dtrain, mpiexec, top)
        test_hostile(dtrain, top)
        test_no_time_passes(dtrain, top)
        test_many(dtrain, top)
        test_long(dtrain, top)
        test_compare(dtrain, top)
        test_layers_differ(dtrain, top)
        test_refused(dtrain, top)
    print("\n".join(wrong) or "all reports are right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
