"""data.validation, against files that were split beforehand by another implementation of the hold-out: the same training to the bit, whose
test results are the validation results; then the records, what a resumed run keeps, and what is refused.

usage: DTRAIN=... MPIEXEC=... test_validation.py"""
import csv
import glob
import os
import random
import re

import checks
from checks import check, dtrain, finish, new_folder, read, read_json, records, sets, summary, write_json
from document import Document, Report
from samples import write_idx

N_TRAIN, N_TEST, N_HELD, SIDE, SEED = 330, 90, 66, 8, 5


# ---- the hold-out by another implementation: base/rng.h, base/permutation.h and data/validation_split.c say how

def philox(counter, key0, key1):
    c = list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ key1, p0 & 0xFFFFFFFF]
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def permuted(index, n, seed):
    bits = 4
    while 1 << 2 * bits < n:
        bits += 1
    mask, x = (1 << bits) - 1, index
    while True:
        left, right = x >> bits, x & mask
        for turn in range(6):
            word = philox([turn, right, 0, 2 << 24 | 0xFFFFFF], seed & 0xFFFFFFFF, seed >> 32)[0]
            left, right = right, (left ^ word) & mask
        x = left << bits | right
        if x < n:
            return x


def held_out(n, n_held, seed):
    return sorted(permuted(i, n, seed) for i in range(n - n_held, n))


# ---- files

def draw(n, seed):
    """Noisy images of ten patterns, and labels, some of which are wrong."""
    rng = random.Random(seed)
    patterns = [bytes(random.Random(k).choices((60, 190), k=SIDE * SIDE)) for k in range(10)]
    samples = []
    for _ in range(n):
        label = rng.randrange(10)
        image = bytes(min(255, max(0, p + int(rng.gauss(0, 80)))) for p in patterns[label])
        samples.append((image, label if rng.random() < 0.9 else rng.randrange(10)))
    return samples


def write_sets(folder, train, test):
    os.makedirs(folder)
    for split, samples in (("train", train), ("t10k", test)):
        write_idx(folder, split, (SIDE, SIDE), b"".join(image for image, _ in samples), [label for _, label in samples])


CONFIG = {
    "data": {"format": "idx", "dir": "whole", "sharding": "global"},
    "model": {"input": [1, SIDE, SIDE], "layers": [
        {"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"}, {"type": "dropout", "rate": 0.2}, {"type": "flatten"},
        {"type": "dense", "units": 16, "activation": "relu"}, {"type": "dense", "units": 10}]},
    "train": {"epochs": 24, "seed": SEED, "batch": {"global": 40}, "optimizer": {"lr": 0.03}},
    "checkpoint": {"best": "validation_loss", "keep": 99},
    "device": "cpu", "threads": 1, "report": False,
}
HELD = ["data.validation=0.2"]


# ---- runs

def train(run, *settings, ranks=1, code=0, resume=False):
    done = dtrain("--config", "config.json", "--run", run, *["--resume"] * resume, *sets(*settings), ranks=ranks, code=code)
    return done.stdout, done.stderr


def metric(run, name):
    return [r[name] for r in records(run, "epoch")]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 2e-6 * abs(y) for x, y in zip(a, b))


def evaluate(checkpoint, *arguments):
    """(loss with four digits, correct ones of all)"""
    done = dtrain("eval", checkpoint, *arguments)
    return re.search(r"test loss +(\S+)", done.stdout)[1], re.search(r"\((\d+/\d+)\)", done.stdout)[1]


def results(of, kind):
    n = {"test": N_TEST, "validation": N_HELD}[kind]
    return f"{of[kind + '_loss']:.4f}", f"{round(of[kind + '_accuracy'] * n)}/{n}"


# ---- the checks

def check_split(train_set, test_set):
    held = held_out(N_TRAIN, N_HELD, SEED)
    check(len(set(held)) == N_HELD, "the other implementation holds out something else")
    write_sets("split", [s for i, s in enumerate(train_set) if i not in set(held)], [train_set[i] for i in held])
    out, err = train("held", *HELD)
    _, warned = train("beforehand", "data.dir=split", "checkpoint.best=test_loss")
    for name in ("loss", "accuracy"):
        check(metric("held", "validation_" + name) == metric("beforehand", "test_" + name), f"validation {name} is not that of the split files")
    check(metric("held", "train_loss") == metric("beforehand", "train_loss"), "other training losses than with split files")
    ours, theirs = summary("held"), summary("beforehand")
    for key in ("weights_xxh3", "best_epoch", "best_value"):
        check(abs(ours[key] - theirs[key]) < 1e-8 if key == "best_value" else ours[key] == theirs[key], f"{key} differs from that with split files",
              (ours[key], theirs[key]))
    best = ours["best_epoch"]
    check(1 < best < 24, "the best epoch is the last: nothing is tested", (best, metric("held", "validation_loss")))
    check(ours["tested_epoch"] == best, "tested_epoch")
    check(results(ours, "test") == evaluate("held/checkpoints/best.safetensors"), "the test result is not of the best checkpoint")
    check(abs(ours["validation_loss"] - metric("held", "validation_loss")[best - 1]) < 1e-7, "the validation result is not of the best epoch")
    check(evaluate("held") == results(ours, "test"), "eval of the run")
    check(evaluate("held/checkpoints/best.safetensors", "--data", "split") == results(ours, "validation"), "eval on the held-out samples")
    check(out.endswith(f"({results(ours, 'test')[1]}) of the best epoch, {best} of 24\n"), "stdout", out)
    check("warning" not in err, "a warning without a reason", err)
    check(f"  {N_HELD} validation samples held out; the test set is evaluated once, at the end\n" in err, "no banner line", err)
    check(len(re.findall(r"^epoch .* validation loss \S+  validation accuracy ", err, re.M)) == 24, "no epochs on stderr", err)
    lines = [line for line in warned.splitlines() if "warning" in line]
    check(lines == ["dtrain: warning: checkpoint.best: the test samples choose the result that they measure (hold samples "
                                       "out with data.validation, such as 0.1)"], "not one warning", lines)


def check_records():
    check(all("test_loss" not in r and "test_accuracy" not in r for r in records("held", "epoch")), "the records of an epoch")
    start = records("held", "run")[0]
    check([start[k + "_samples"] for k in ("train", "validation", "test")] == [N_TRAIN - N_HELD, N_HELD, N_TEST], "sample counts", start)
    rows = list(csv.reader(read("held/metrics.csv").splitlines()))
    check(rows[0][4:7] == ["validation_loss", "validation_accuracy", "images_per_s"] and len({len(r) for r in rows}) == 1, "csv", rows[:2])
    check(read("beforehand/metrics.csv").splitlines()[0] ==
          "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,lr,world_size", "csv without")
    for name in ("config.json", "metrics.jsonl", "summary.json", "metrics.csv"):
        check("validation" not in read(f"beforehand/{name}"), f"{name} of a run without has it")


def check_ranks():
    """Any number of ranks, in the middle of an epoch, too; and strategies."""
    exact = [*HELD, "distributed.deterministic=true", "distributed.leaf=8", "train.early_stopping.metric=validation_loss",
             "train.early_stopping.patience=2", "train.epochs=40", "train.schedule.type=plateau", "train.schedule.patience=1"]
    for ranks in (1, 2, 3):
        train(f"ranks{ranks}", *exact, ranks=ranks)
    train("parts", *exact, "train.max_steps=10", ranks=3)
    _, err = train("parts", *exact, ranks=2, resume=True)
    one = summary("ranks1")
    check(one.get("stopped_early", "").startswith("validation loss has not improved for 2 epochs"), "ranks: it does not stop early", one)
    for run in ("ranks2", "ranks3", "parts"):
        other = summary(run)
        for key in ("weights_xxh3", "best_epoch", "best_value", "tested_epoch", "stopped_early", "test_accuracy", "epochs"):
            check(one.get(key) == other.get(key), f"{run}: another {key}", (one.get(key), other.get(key)))
        for name in ("validation_loss", "validation_accuracy", "lr"):
            check(near(metric(run, name), metric("ranks1", name)), f"{run}: another {name}", (metric(run, name), metric("ranks1", name)))
    for ranks, settings in ((3, ["data.sharding=shard"]), (3, ["distributed.strategy=parameter_server"]), (2, ["distributed.strategy=pipeline"]),
                            (2, ["data.sharding=replicate", "train.batch={\"per_rank\":20}"])):
        run = re.sub(r"\W", "_", settings[0])
        train(run, *HELD, *settings, ranks=ranks)
        check(results(summary(run), "test") == evaluate(run), f"{run}: another test result than its best checkpoint")


def check_last():
    """Without a best checkpoint the last weights are tested; and again when there is nothing left to do."""
    out, _ = train("last", *HELD, "checkpoint.best=none", "train.epochs=2", ranks=2)
    check("tested_epoch" not in summary("last") and results(summary("last"), "test") == evaluate("last"), "last: not of the last")
    check(out.endswith(" after 2 epochs\n"), "last: stdout", out)
    again, err = train("last", *HELD, "checkpoint.best=none", "train.epochs=2", ranks=2, resume=True)
    check(out == again and "nothing to do" in err, "last, again: another result")
    check(results(summary("last"), "validation") == evaluate("last", "--data", "split"), "last, again: no validation")
    check(read_json("last/config.json")["data"]["validation"] == 0.2, "last: config.json")


def check_pages():
    report, result = Report("held", "--html", "page.html"), summary("held")
    figures = report.parts["Result"]["figures"]
    check(figures["test accuracy"]["hint"].endswith(f", by the weights of epoch {result['tested_epoch']}"), f"report: {figures}")
    check(figures["validation loss"]["value"] == result["validation_loss"] and f" {N_HELD} samples" in figures["validation accuracy"]["hint"], f"report: {figures}")
    check([row["val. loss"] for row in report.rows("Epochs")] == [record["validation_loss"] for record in records("held", "epoch")], "report: table")
    check("validation, after an epoch" in report.lines("Loss") and "validation, after an epoch" in read("page.html"), "report: curves")
    report = Report("held", "last")
    check(report.rows("Results")[0]["val. loss"] == result["validation_loss"] and "Loss on the validation samples" in report.parts, "report of two")
    check("validation" not in dtrain("report", "beforehand").stdout, "report without")
    plan = Document("plan", "--config", "config.json", *sets(*HELD))
    found = [plan.figure("Samples", key) for key in ("training", "validation", "test")]
    check(found == [N_TRAIN - N_HELD, N_HELD, N_TEST], "plan", found)
    train("board", *HELD, "train.epochs=2", "tensorboard=true")
    (path,) = glob.glob("board/tensorboard/*")
    events = read(path, "rb")
    check([events.count(tag) for tag in (b"loss/validation", b"accuracy/validation", b"loss/test", b"accuracy/test")] == [2, 2, 1, 1], "TensorBoard")


def check_sweep():
    sweep = ["sweep", "--config", "config.json", "--run", "many", *sets(*HELD, "train.epochs=2")]
    result = Document(*sweep, *sets("train.optimizer.lr=1e-6,0.01,1e-4"), ranks=2)
    rows = result.rows("Runs")
    accuracies = [row["validation accuracy"] for row in rows]
    check(rows[0]["run"] == 2 and accuracies == sorted(accuracies, reverse=True), "sweep: not by validation", rows)
    check(all(row["test accuracy"] is not None for row in rows) and not result.prose, "sweep: no test results, or warned", rows)


def check_evaluate():
    """train.evaluate=end: the same training, whose test set is evaluated once; validation samples are after each epoch all the same."""
    plain = ["checkpoint.best=none", "train.epochs=3", "train.ema=0.9", "tensorboard=true"]
    each, _ = train("each", *plain, ranks=2)
    end, err = train("end", *plain, "train.evaluate=end", ranks=2)
    check(end == each and summary("end")["weights_xxh3"] == summary("each")["weights_xxh3"], "evaluate=end: another result", end, each)
    names = ["test_loss", "test_accuracy", "ema_test_loss", "ema_test_accuracy"]
    tested = [[name in r for name in names] for r in records("end", "epoch")]
    check(tested == [[False] * 4, [False] * 4, [True] * 4], "evaluate=end: not the last epoch alone has results", tested)
    lines = [line for line in err.splitlines() if line.startswith("epoch ")]
    check(["test" in line for line in lines] == [False, False, True], "evaluate=end: the lines of epochs", lines)
    rows = list(csv.DictReader(read("end/metrics.csv").splitlines()))
    check([row["test_loss"] != "" for row in rows] == [False, False, True] and rows[0]["lr"] != "", "evaluate=end: metrics.csv", rows)
    dtrain("report", "end")
    train("pieces", *plain, "train.evaluate=end", "train.max_steps=12", ranks=2)
    check("test_loss" in records("pieces", "epoch")[1], "evaluate=end: nothing at the last step of max_steps")
    resumed, _ = train("pieces", *plain, "train.evaluate=end", ranks=2, resume=True)
    check(resumed == each, "evaluate=end: stopped and resumed", resumed, each)
    held = [*HELD, "train.epochs=2"]
    check(train("held-end", *held, "train.evaluate=end")[0] == train("held-each", *held)[0] and
          metric("held-end", "validation_loss") == metric("held-each", "validation_loss"), "evaluate=end: with validation samples")


def check_refusals():
    def refused(code, text, *settings, run=None):
        """Of a new run, or where this one is resumed."""
        checks.refused(code, text, "--config", "config.json", "--run", run or "no", *["--resume"] * bool(run), *sets(*settings), ranks=2)

    for value in ("1.5", "1e30", "-1", "-0.1", "true", "\"0.1\"", "[0.1]", "2147483648"):
        refused(64, "data.validation", "data.validation=" + value)
    refused(78, "data.validation: 0.001 of 330 training samples leaves none to validate with", "data.validation=0.001")
    refused(78, "data.validation: 0.999 of 330 training samples leaves none to train with", "data.validation=0.999")
    refused(78, "data.validation: 330 of 330 training samples leaves none to train with", "data.validation=330")
    refused(78, "train.batch: 40 samples a step, but the training set has 33", "data.validation=0.9")
    refused(78, "checkpoint.best: there are no validation samples")
    refused(64, "checkpoint.best: with data.validation the test set is for the end alone", HELD[0], "checkpoint.best=test_loss")
    refused(64, "train.early_stopping.metric: with data.validation", HELD[0], "train.early_stopping.metric=test_accuracy")
    for key, settings in (("checkpoint.best", ["checkpoint.best=test_loss"]), ("train.early_stopping.metric", ["train.early_stopping.metric=test_loss"]),
                          ("train.schedule.metric", ["train.schedule.type=plateau", "train.schedule.metric=test_loss"])):
        refused(64, key + ": no epoch has a metric when train.evaluate is end", "checkpoint.best=none", "train.evaluate=end", *settings)
    refused(64, "train.schedule.metric: with data.validation", HELD[0], "train.schedule.type=plateau", "train.schedule.metric=test_loss")
    refused(78, "data.validation was 0.2, now it is 0.1 (use the checkpoint's, or begin a new run)", "data.validation=0.1", run="held")
    refused(78, "data.validation was 0.2, now it is not there", "checkpoint.best=none", run="held")
    refused(78, "data.validation was not there, now it is 0.2", HELD[0], run="beforehand")
    os.rename("whole/t10k-labels-idx1-ubyte", "away")
    refused(66, "neither t10k-labels-idx1-ubyte", "checkpoint.best=none")
    _, err = train("untested", HELD[0], "train.epochs=1")
    check("there is no test set" in err, "a test set that is not there: no warning", err)
    os.rename("away", "whole/t10k-labels-idx1-ubyte")
    _, err = train("three", "checkpoint.best=test_loss", "train.early_stopping.metric=test_loss", "train.schedule.type=plateau", "train.epochs=1", ranks=2)
    lines = [line for line in err.splitlines() if "warning" in line]
    check(len(lines) == 1 and ": train.early_stopping, train.schedule, checkpoint.best: the test" in lines[0], "three keys: not one line", lines)
    _, err = train("single", "data.validation=2", "train.epochs=1")
    check("  2 validation samples held out; the test set" in err, "a number of samples", err)


new_folder()
train_images, test_images = draw(N_TRAIN, 1), draw(N_TEST, 2)
write_sets("whole", train_images, test_images)
write_json("config.json", CONFIG)
check_split(train_images, test_images)
check_records()
check_ranks()
check_last()
check_pages()
check_sweep()
check_evaluate()
check_refusals()
finish()
