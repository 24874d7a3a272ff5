"""`train.ema`: checkpoints of every step hold the average that a loop over their weights gives (and PyTorch's AveragedModel, where it
is installed), whatever combines the gradients; a resumed run has the bytes of one that was not interrupted; records, eval --ema and
export --ema are of that average.

usage: test_ema.py DTRAIN MPIEXEC"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import checkpoint

DTRAIN, MPIEXEC = os.path.abspath(sys.argv[1]), sys.argv[2]
DECAY = 0.75
N_STEPS = 8
CONFIG = {
    "data": {"format": "synthetic", "train_samples": 96, "test_samples": 64, "noise": 0.3},
    "model": {"input": [2, 8, 7], "layers": [
        {"type": "conv2d", "filters": 5, "kernel": 3, "activation": "gelu"}, {"type": "max_pool2d", "size": 2}, {"type": "flatten"},
        {"type": "dense", "units": 4}]},
    "train": {"epochs": 2, "batch": {"global": 24}, "optimizer": {"lr": 0.02}, "ema": DECAY},
    "checkpoint": {"every_steps": 1, "keep": N_STEPS}, "report": False, "device": "cpu"}
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED:", text)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def train(folder, n_ranks, *arguments):
    done = run(MPIEXEC, "-n", str(n_ranks), DTRAIN, "--config", "ema.json", "--run", folder, *arguments)
    check(done.returncode == 0, f"{folder}: {done.stderr}")
    return done


def path_of(folder, step):
    return os.path.join(folder, "checkpoints", f"step-{step:012d}.safetensors")


def tensors_of(path):
    """Name: values, of the weights and of their average."""
    header, data = checkpoint.split(checkpoint.read(path))
    values = {name: memoryview(data[slice(*t["data_offsets"])]).cast("f").tolist() for name, t in header.items() if name != "__metadata__"}
    average = {name.removeprefix("ema."): value for name, value in values.items() if name.startswith("ema.")}
    return {name: value for name, value in values.items() if name in average}, average


def averages_by_hand(weights):
    """After each step; the first one's is its weights."""
    averages = [weights[0]]
    for now in weights[1:]:
        averages.append({name: [DECAY * a + (1 - DECAY) * w for a, w in zip(averages[-1][name], now[name])] for name in now})
    return averages


def averages_by_torch(weights):
    try:
        import torch
    except ImportError:
        return None
    from torch.optim import swa_utils
    model = torch.nn.ParameterList([torch.zeros(len(value), dtype=torch.float64) for value in weights[0].values()])
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(DECAY))
    averages = []
    for now in weights:
        for p, value in zip(model, now.values()):
            p.data = torch.tensor(value, dtype=torch.float64)
        averaged.update_parameters(model)
        averages.append({name: p.tolist() for name, p in zip(now, averaged.module)})
    return averages


def far_apart(a, b):
    return max(abs(x - y) for name in a for x, y in zip(a[name], b[name]))


def check_averages(folder):
    saved = [tensors_of(path_of(folder, step)) for step in range(1, N_STEPS + 1)]
    weights = [now for now, _ in saved]
    check(sorted(weights[0]) == ["conv1.bias", "conv1.weight", "fc1.bias", "fc1.weight"], f"{folder}: {sorted(weights[0])}")
    check(far_apart(weights[-1], saved[-1][1]) > 1e-3, f"{folder}: the average is the last weights")
    for who, expected in (("a loop", averages_by_hand(weights)), ("PyTorch", averages_by_torch(weights))):
        for step, (_, average) in enumerate(saved, 1):
            apart = far_apart(average, expected[step - 1]) if expected else 0
            check(apart <= 1e-6, f"{folder}: after step {step} the average differs by {apart:g} from that of {who}")


def test_averages():
    train("alone", 1)
    train("two", 2)
    train("global", 2, "--set", "data.sharding=global", "--set", "distributed.order=priority")
    train("servers", 3, "--set", "distributed.strategy=parameter_server")
    train("pipeline", 2, "--set", "distributed.strategy=pipeline")
    for folder in ("alone", "two", "global", "servers", "pipeline"):
        check_averages(folder)


def test_resume():
    """In the middle of an epoch and at its end."""
    for n_ranks, whole in ((1, "alone"), (2, "two")):
        for stop in (2, 4):
            parts = f"parts-{n_ranks}-{stop}"
            train(parts, n_ranks, "--set", f"train.max_steps={stop}")
            check("warning" not in train(parts, n_ranks, "--resume").stderr, f"{parts}: warns")
            check(tensors_of(path_of(parts, N_STEPS)) == tensors_of(path_of(whole, N_STEPS)), f"{parts}: resumed to other weights")


def test_turned_on_and_off():
    for before, after, text in (("0", "0.5", "has no average"), ("0.5", "0", "dropped")):
        folder = f"from-{before}"
        train(folder, 1, "--set", f"train.ema={before}", "--set", "train.max_steps=4")
        done = train(folder, 1, "--resume", "--set", f"train.ema={after}")
        check(text in done.stderr, f"{folder}: {done.stderr}")
        check(bool(tensors_of(path_of(folder, N_STEPS))[1]) == (after != "0"), f"{folder}: the average in its last checkpoint")
    weights, average = tensors_of(path_of("from-0", 5))
    check(weights == average, "an average that begins in the fifth step is not its weights")


def test_weights_of_another_run():
    """Its average is not where this one's begins."""
    train("on", 2, "--weights", path_of("alone", N_STEPS), "--set", "train.max_steps=1")
    weights, average = tensors_of(path_of("on", 1))
    check(weights == average, "the average of the first step is not its weights")


def test_records():
    with open("alone/metrics.jsonl") as file:
        epochs = [record for record in map(json.loads, file) if record["type"] == "epoch"]
    with open("alone/summary.json") as file:
        summary = json.load(file)
    for epoch, record in enumerate(epochs, 1):
        for option, kind in ((["--ema"], "ema_test"), ([], "test")):
            done = run(DTRAIN, "eval", "--checkpoint", path_of("alone", 4 * epoch), *option)
            right = int(done.stdout.split("(")[1].split("/")[0])
            check(right == round(64 * record[kind + "_accuracy"]), f"epoch {epoch}: {done.stdout} {record}")
            check(done.stderr.split()[-1] == f"{record[kind + '_loss']:.4f}", f"epoch {epoch}: {done.stderr} {record}")
        check(record["ema_test_loss"] != record["test_loss"], f"epoch {epoch}: {record}")
    check(len(epochs) == 2 and abs(summary["ema_test_loss"] - epochs[-1]["ema_test_loss"]) < 1e-6, f"{summary} {epochs}")


def test_validation():
    """With a validation set: the epochs have the average's result on it, the best epoch is the average's where the metric is, and the
    end tests the best weights and their average, as eval does."""
    arguments = [word for setting in ("data.validation=0.25", "train.epochs=4", "train.optimizer.lr=0.6",
                                      "checkpoint.best=ema_validation_loss") for word in ("--set", setting)]
    for n_ranks in (1, 2):
        folder = f"validated-{n_ranks}"
        told = train(folder, n_ranks, *arguments).stderr.splitlines()
        with open(f"{folder}/metrics.jsonl") as file:
            epochs = [record for record in map(json.loads, file) if record["type"] == "epoch"]
        with open(f"{folder}/summary.json") as file:
            summary = json.load(file)
        losses = [epoch["ema_validation_loss"] for epoch in epochs]
        best = min(range(4), key=lambda i: losses[i])
        check(best < 3, f"{folder}: the last epoch is the best, whose average needs no checkpoint: {losses}")
        check(not any("ema_test_loss" in epoch for epoch in epochs), f"{folder}: an epoch tells of the test set")
        check(len(set(losses)) == 4 and all(epoch["validation_loss"] != loss for epoch, loss in zip(epochs, losses)), f"{losses}")
        check(summary["best_epoch"] == summary["tested_epoch"] == best + 1, f"{folder}: {summary} {losses}")
        check(abs(summary["best_value"] - losses[best]) < 1e-6, f"{folder}: {summary} {losses}")
        for kind in ("loss", "accuracy"):
            check(abs(summary[f"ema_validation_{kind}"] - epochs[best][f"ema_validation_{kind}"]) < 1e-6, f"{folder}: {summary}")
        for option, name in ((["--ema"], "ema_test"), ([], "test")):
            done = run(DTRAIN, "eval", "--checkpoint", folder, *option)
            check(done.stderr.split()[-1] == f"{summary[name + '_loss']:.4f}", f"{folder}: {done.stderr} {summary}")
        line = f"  average of the weights: test loss {summary['ema_test_loss']:.4f}  "
        check(any(text.startswith(line) for text in told), f"{folder}: {line} is not in {told}")


def test_resumed_at_its_end():
    """There is nothing left but to tell the result, the average's too."""
    with open("alone/summary.json") as file:
        before = json.load(file)
    train("alone", 1, "--resume")
    with open("alone/summary.json") as file:
        after = json.load(file)
    check(all(abs(before[name] - after[name]) < 1e-6 for name in ("ema_test_loss", "ema_test_accuracy")), f"{before} {after}")


def refused(code, text, *command):
    done = run(*command)
    lines = done.stderr.splitlines()
    check(done.returncode == code and len(lines) == 1 and text in lines[0], f"{command}: {done}")


def test_errors():
    asynchronous = ["--set", "distributed.strategy=parameter_server", "--set", 'distributed.parameter_server={"mode":"async"}']
    refused(78, "train.ema", MPIEXEC, "-n", "2", DTRAIN, "--config", "ema.json", "--run", "never", *asynchronous)
    refused(64, "train.ema: expected a number >= 0 and < 1", DTRAIN, "--config", "ema.json", "--run", "never", "--set", "train.ema=1")
    refused(64, "checkpoint.best: there is no average of the weights (set train.ema", DTRAIN, "--config", "ema.json", "--run", "never",
            "--set", "train.ema=0", "--set", "checkpoint.best=ema_test_loss")
    refused(64, "with data.validation the test set is for the end", DTRAIN, "--config", "ema.json", "--run", "never",
            "--set", "data.validation=0.25", "--set", "checkpoint.best=ema_test_loss")
    refused(78, "no average of the weights (leave --ema out", DTRAIN, "eval", "--ema", "--checkpoint", path_of("from-0.5", N_STEPS))


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    with open("ema.json", "w") as out:
        json.dump(CONFIG, out)
    test_averages()
    test_resume()
    test_turned_on_and_off()
    test_weights_of_another_run()
    test_records()
    test_validation()
    test_resumed_at_its_end()
    test_errors()
sys.exit(len(failures) > 0)
