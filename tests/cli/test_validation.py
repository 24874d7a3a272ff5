"""data.validation, against files that were split beforehand by another implementation of the hold-out: the same training to the bit, whose
test results are the validation results; then the records, what a resumed run keeps, and what is refused.

usage: test_validation.py DTRAIN MPIEXEC"""
import csv
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

DTRAIN, MPIEXEC = sys.argv[1:3]
N_TRAIN, N_TEST, N_HELD, SIDE, SEED = 330, 90, 66, 8, 5
wrong = []
os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPICH keeps memory until the process ends


def check(text, condition, shown=""):
    if not condition:
        wrong.append(f"{text} {shown}".rstrip())


# ---- the hold-out by another implementation: base/rng.h, base/permutation.h and data/validation.c say how

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


def write_set(folder, name, samples):
    with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, len(samples), SIDE, SIDE) + b"".join(image for image, _ in samples))
    with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">II", 0x801, len(samples)) + bytes(label for _, label in samples))


def write_sets(folder, train, test):
    os.mkdir(folder)
    write_set(folder, "train", train)
    write_set(folder, "t10k", test)


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

def dtrain(*arguments, ranks=1, code=0):
    done = subprocess.run([MPIEXEC, "-n", str(ranks), DTRAIN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    check(f"{' '.join(arguments)}: exit code {done.returncode}, not {code}:", done.returncode == code, done.stderr)
    return done.stdout, done.stderr


def train(run, *sets, ranks=1, code=0, resume=False):
    arguments = ["--config", "config.json", "--run", run, *(["--resume"] if resume else [])]
    for one in sets:
        arguments += ["--set", one]
    return dtrain(*arguments, ranks=ranks, code=code)


def summary(run):
    with open(f"{run}/summary.json") as file:
        return json.load(file)


def records(run, kind):
    with open(f"{run}/metrics.jsonl") as file:
        return [r for r in map(json.loads, file) if r["type"] == kind]


def metric(run, name):
    return [r[name] for r in records(run, "epoch")]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 2e-6 * abs(y) for x, y in zip(a, b))


def newest(run):
    return max(glob.glob(f"{run}/checkpoints/step-*"))


def evaluate(checkpoint, *arguments):
    """(loss with four digits, correct ones of all)"""
    out, err = dtrain("eval", "--checkpoint", checkpoint, *arguments)
    return re.search(r"test loss (\S+)", err)[1], re.search(r"\((\d+/\d+)\)", out)[1]


def results(of, kind):
    n = {"test": N_TEST, "validation": N_HELD}[kind]
    return f"{of[kind + '_loss']:.4f}", f"{round(of[kind + '_accuracy'] * n)}/{n}"


# ---- the checks

def check_split(train_set, test_set):
    held = held_out(N_TRAIN, N_HELD, SEED)
    check("the other implementation holds out something else", len(set(held)) == N_HELD)
    write_sets("split", [s for i, s in enumerate(train_set) if i not in set(held)], [train_set[i] for i in held])
    out, err = train("held", *HELD)
    _, warned = train("beforehand", "data.dir=split", "checkpoint.best=test_loss")
    for name in ("loss", "accuracy"):
        check(f"validation {name} is not that of the split files", metric("held", "validation_" + name) == metric("beforehand", "test_" + name))
    check("other training losses than with split files", metric("held", "train_loss") == metric("beforehand", "train_loss"))
    ours, theirs = summary("held"), summary("beforehand")
    for key in ("weights_xxh3", "best_epoch", "best_value"):
        check(f"{key} differs from that with split files", abs(ours[key] - theirs[key]) < 1e-8 if key == "best_value" else ours[key] == theirs[key],
              (ours[key], theirs[key]))
    best = ours["best_epoch"]
    check("the best epoch is the last: nothing is tested", 1 < best < 24, (best, metric("held", "validation_loss")))
    check("tested_epoch", ours["tested_epoch"] == best)
    check("the test result is not of the best checkpoint", results(ours, "test") == evaluate("held/checkpoints/best.safetensors"))
    check("the validation result is not of the best epoch", abs(ours["validation_loss"] - metric("held", "validation_loss")[best - 1]) < 1e-7)
    check("eval of the run", evaluate("held") == results(ours, "test"))
    check("eval on the held-out samples", evaluate("held/checkpoints/best.safetensors", "--data", "split") == results(ours, "validation"))
    check("stdout", out.endswith(f"({results(ours, 'test')[1]}) of the best epoch, {best} of 24\n"), out)
    check("a warning without a reason", "warning" not in err, err)
    check("no banner line", f"  {N_HELD} validation samples held out; the test set comes at the end\n" in err, err)
    check("no epochs on stderr", len(re.findall(r"^epoch .* validation loss \S+  validation accuracy ", err, re.M)) == 24, err)
    lines = [line for line in warned.splitlines() if "warning" in line]
    check("not one warning", lines == ["dtrain: warning: checkpoint.best: the test samples choose the result that they measure (hold samples "
                                       "out with data.validation, such as 0.1)"], lines)


def check_records():
    check("the records of an epoch", all("test_loss" not in r and "test_accuracy" not in r for r in records("held", "epoch")))
    start = records("held", "run")[0]
    check("sample counts", [start[k + "_samples"] for k in ("train", "validation", "test")] == [N_TRAIN - N_HELD, N_HELD, N_TEST], start)
    with open("held/metrics.csv") as file:
        rows = list(csv.reader(file))
    check("csv", rows[0][4:7] == ["validation_loss", "validation_accuracy", "images_per_s"] and len({len(r) for r in rows}) == 1, rows[:2])
    with open("beforehand/metrics.csv") as file:
        check("csv without", file.readline() ==
              "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,lr,world_size\n")
    for name in ("config.json", "metrics.jsonl", "summary.json", "metrics.csv"):
        with open(f"beforehand/{name}") as file:
            check(f"{name} of a run without has it", "validation" not in file.read())


def check_ranks():
    """Any number of ranks, in the middle of an epoch, too; and strategies."""
    exact = [*HELD, "distributed.deterministic=true", "distributed.leaf=8", "train.early_stopping.metric=validation_loss",
             "train.early_stopping.patience=2", "train.epochs=40", "train.schedule.type=plateau", "train.schedule.patience=1"]
    for ranks in (1, 2, 3):
        train(f"ranks{ranks}", *exact, ranks=ranks)
    train("parts", *exact, "train.max_steps=10", ranks=3)
    _, err = train("parts", *exact, ranks=2, resume=True)
    one = summary("ranks1")
    check("ranks: it does not stop early", one.get("stopped_early", "").startswith("validation loss has not improved for 2 epochs"), one)
    for run in ("ranks2", "ranks3", "parts"):
        other = summary(run)
        for key in ("weights_xxh3", "best_epoch", "best_value", "tested_epoch", "stopped_early", "test_accuracy", "epochs"):
            check(f"{run}: another {key}", one.get(key) == other.get(key), (one.get(key), other.get(key)))
        for name in ("validation_loss", "validation_accuracy", "lr"):
            check(f"{run}: another {name}", near(metric(run, name), metric("ranks1", name)), (metric(run, name), metric("ranks1", name)))
    for ranks, sets in ((3, ["data.sharding=shard"]), (3, ["distributed.strategy=parameter_server"]), (2, ["distributed.strategy=pipeline"]),
                        (2, ["data.sharding=replicate", "train.batch={\"per_rank\":20}"])):
        run = re.sub(r"\W", "_", sets[0])
        train(run, *HELD, *sets, ranks=ranks)
        check(f"{run}: another test result than its best checkpoint", results(summary(run), "test") == evaluate(run))


def check_last():
    """Without a best checkpoint the last weights are tested; and again when there is nothing left to do."""
    out, _ = train("last", *HELD, "checkpoint.best=none", "train.epochs=2", ranks=2)
    check("last: not of the last", "tested_epoch" not in summary("last") and results(summary("last"), "test") == evaluate("last"))
    check("last: stdout", out.endswith(" after 2 epochs\n"), out)
    again, err = train("last", *HELD, "checkpoint.best=none", "train.epochs=2", ranks=2, resume=True)
    check("last, again: another result", out == again and "nothing to do" in err)
    check("last, again: no validation", results(summary("last"), "validation") == evaluate("last", "--data", "split"))
    with open("last/config.json") as file:
        check("last: config.json", json.load(file)["data"]["validation"] == 0.2)


def check_pages():
    out, _ = dtrain("report", "held", "--html", "page.html")
    check("report: facts", re.search(r"^test accuracy .*, by the weights of epoch \d+$", out, re.M) and
          re.search(rf"^validation +accuracy \S+ %, loss \S+, of {N_HELD} samples$", out, re.M), out)
    check("report: table", "val. loss" in out and "test loss  test acc" not in out, out)
    with open("page.html") as file:
        check("report: page", "validation, after an epoch" in file.read())
    out, _ = dtrain("report", "held", "last", "--html", "two.html")
    check("compare", re.search(r"test loss +validation ", out), out)
    with open("two.html") as file:
        check("compare: page", "Loss on the validation samples" in file.read())
    out, _ = dtrain("report", "beforehand")
    check("report without", "validation" not in out, out)
    out, _ = dtrain("plan", "--config", "config.json", "--set", HELD[0])
    check("plan", f"data: {N_TRAIN - N_HELD} training samples, {N_HELD} validation samples, {N_TEST} test samples" in out, out)
    train("board", *HELD, "train.epochs=2", "tensorboard=true")
    (path,) = glob.glob("board/tensorboard/*")
    with open(path, "rb") as file:
        events = file.read()
    check("TensorBoard", [events.count(tag) for tag in (b"loss/validation", b"accuracy/validation", b"loss/test", b"accuracy/test")] == [2, 2, 1, 1])


def check_sweep():
    sweep = ["sweep", "--config", "config.json", "--run", "many", "--set", HELD[0], "--set", "train.epochs=2"]
    out, _ = dtrain(*sweep, "--set", "train.optimizer.lr=1e-6,0.01,1e-4", ranks=2)
    rows = [line.split() for line in out.splitlines()]
    check("sweep: no columns", "validation accuracy  validation loss  test accuracy  test loss" in out, out)
    check("sweep: not by validation", rows[1][0] == "2" and
          float(rows[1][3]) >= float(rows[2][3]) >= float(rows[3][3]), out)
    with open("many/sweep.csv") as file:
        check("sweep: table", file.readline().rstrip().endswith(",verdict,validation_accuracy,validation_loss,test_accuracy,test_loss,steps,seconds"))


def check_refusals():
    def refused(code, text, *sets, run="no", resume=False):
        _, err = train(run, *sets, ranks=2, code=code, resume=resume)
        check(f"{sets}: another text", text in err and err.count("\n") == 1, err)

    for value in ("1.5", "1e30", "-1", "-0.1", "true", "\"0.1\"", "[0.1]", "2147483648"):
        refused(64, "data.validation", "data.validation=" + value)
    refused(78, "data.validation: 0.001 of 330 training samples leaves none to validate with", "data.validation=0.001")
    refused(78, "data.validation: 0.999 of 330 training samples leaves none to train with", "data.validation=0.999")
    refused(78, "data.validation: 330 of 330 training samples leaves none to train with", "data.validation=330")
    refused(78, "train.batch: 40 samples a step, but the training set has 33", "data.validation=0.9")
    refused(78, "checkpoint.best: there are no validation samples")
    refused(64, "checkpoint.best: with data.validation the test set is for the end alone", HELD[0], "checkpoint.best=test_loss")
    refused(64, "train.early_stopping.metric: with data.validation", HELD[0], "train.early_stopping.metric=test_accuracy")
    refused(64, "train.schedule.metric: with data.validation", HELD[0], "train.schedule.type=plateau", "train.schedule.metric=test_loss")
    refused(78, "data.validation was 0.2, now it is 0.1 (use the checkpoint's, or begin a new run)", "data.validation=0.1", run="held", resume=True)
    refused(78, "data.validation was 0.2, now it is not there", "checkpoint.best=none", run="held", resume=True)
    refused(78, "data.validation was not there, now it is 0.2", HELD[0], run="beforehand", resume=True)
    os.rename("whole/t10k-labels-idx1-ubyte", "away")
    refused(66, "neither t10k-labels-idx1-ubyte", HELD[0])
    os.rename("away", "whole/t10k-labels-idx1-ubyte")
    _, err = train("three", "checkpoint.best=test_loss", "train.early_stopping.metric=test_loss", "train.schedule.type=plateau", "train.epochs=1", ranks=2)
    lines = [line for line in err.splitlines() if "warning" in line]
    check("three keys: not one line", len(lines) == 1 and ": train.early_stopping, train.schedule, checkpoint.best: the test" in lines[0], lines)
    _, err = train("single", "data.validation=1", "train.epochs=1")
    check("one sample", "  1 validation sample held out; the test set" in err, err)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        train_set, test_set = draw(N_TRAIN, 1), draw(N_TEST, 2)
        write_sets("whole", train_set, test_set)
        with open("config.json", "w") as file:
            json.dump(CONFIG, file)
        check_split(train_set, test_set)
        check_records()
        check_ranks()
        check_last()
        check_pages()
        check_sweep()
        check_refusals()
    print("\n".join(wrong) or "validation samples are held out, and the test set is tested once")
    sys.exit(bool(wrong))


main()
