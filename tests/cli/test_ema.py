"""`train.ema`: checkpoints of every step hold the average that a loop over their weights gives (and PyTorch's AveragedModel, where it
is installed), whatever combines the gradients; a resumed run has the bytes of one that was not interrupted; records, eval --ema and
export --ema are of that average.

usage: DTRAIN=... MPIEXEC=... test_ema.py"""
import re

import checkpoint
from checks import check, checkpoint_of, dtrain, finish, new_folder, records, refused, sets, summary, write_json

DECAY = 0.75
N_STEPS = 8
CONFIG = {
    "data": {"format": "synthetic", "train_samples": 96, "test_samples": 64, "noise": 0.3},
    "model": {"input": [2, 8, 7], "layers": [
        {"type": "conv2d", "filters": 5, "kernel": 3, "activation": "gelu"}, {"type": "max_pool2d", "size": 2}, {"type": "flatten"},
        {"type": "dense", "units": 4}]},
    "train": {"epochs": 2, "batch": {"global": 24}, "optimizer": {"lr": 0.02}, "ema": DECAY},
    "checkpoint": {"every_steps": 1, "keep": N_STEPS}, "report": False, "device": "cpu"}


def train(folder, n_ranks, *arguments):
    return dtrain("--config", "ema.json", "--run", folder, *arguments, ranks=n_ranks)


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
    saved = [tensors_of(checkpoint_of(folder, step)) for step in range(1, N_STEPS + 1)]
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
    train("global", 2, *sets("data.sharding=global", "distributed.order=priority"))
    train("servers", 3, *sets("distributed.strategy=parameter_server"))
    train("pipeline", 2, *sets("distributed.strategy=pipeline"))
    for folder in ("alone", "two", "global", "servers", "pipeline"):
        check_averages(folder)


def test_resume():
    """In the middle of an epoch and at its end."""
    for n_ranks, whole in ((1, "alone"), (2, "two")):
        for stop in (2, 4):
            parts = f"parts-{n_ranks}-{stop}"
            train(parts, n_ranks, *sets(f"train.max_steps={stop}"))
            check("warning" not in train(parts, n_ranks, "--resume").stderr, f"{parts}: warns")
            check(tensors_of(checkpoint_of(parts, N_STEPS)) == tensors_of(checkpoint_of(whole, N_STEPS)), f"{parts}: resumed to other weights")


def test_turned_on_and_off():
    for before, after, text in (("0", "0.5", "has no average"), ("0.5", "0", "dropped")):
        folder = f"from-{before}"
        train(folder, 1, *sets(f"train.ema={before}", "train.max_steps=4"))
        done = train(folder, 1, "--resume", *sets(f"train.ema={after}"))
        check(text in done.stderr, f"{folder}: {done.stderr}")
        check(bool(tensors_of(checkpoint_of(folder, N_STEPS))[1]) == (after != "0"), f"{folder}: the average in its last checkpoint")
    weights, average = tensors_of(checkpoint_of("from-0", 5))
    check(weights == average, "an average that begins in the fifth step is not its weights")


def test_weights_of_another_run():
    """Its average is not where this one's begins."""
    train("on", 2, "--weights", checkpoint_of("alone", N_STEPS), *sets("train.max_steps=1"))
    weights, average = tensors_of(checkpoint_of("on", 1))
    check(weights == average, "the average of the first step is not its weights")


def test_records():
    epochs, result = records("alone", "epoch"), summary("alone")
    for epoch, record in enumerate(epochs, 1):
        for option, kind in ((["--ema"], "ema_test"), ([], "test")):
            done = dtrain("eval", checkpoint_of("alone", 4 * epoch), *option)
            right = int(done.stdout.split("(")[1].split("/")[0])
            check(right == round(64 * record[kind + "_accuracy"]), f"epoch {epoch}: {done.stdout} {record}")
            check(re.search(r"test loss +(\S+)", done.stdout)[1] == f"{record[kind + '_loss']:.4f}", f"epoch {epoch}: {done.stdout} {record}")
        check(record["ema_test_loss"] != record["test_loss"], f"epoch {epoch}: {record}")
    check(len(epochs) == 2 and abs(result["ema_test_loss"] - epochs[-1]["ema_test_loss"]) < 1e-6, f"{result} {epochs}")


def test_validation():
    """With a validation set: the epochs have the average's result on it, the best epoch is the average's where the metric is, and the
    end tests the best weights and their average, as eval does."""
    arguments = sets("data.validation=0.25", "train.epochs=4", "train.optimizer.lr=0.6", "checkpoint.best=ema_validation_loss")
    for n_ranks in (1, 2):
        folder = f"validated-{n_ranks}"
        told = train(folder, n_ranks, *arguments).stderr.splitlines()
        epochs, result = records(folder, "epoch"), summary(folder)
        losses = [epoch["ema_validation_loss"] for epoch in epochs]
        best = min(range(4), key=lambda i: losses[i])
        check(best < 3, f"{folder}: the last epoch is the best, whose average needs no checkpoint: {losses}")
        check(not any("ema_test_loss" in epoch for epoch in epochs), f"{folder}: an epoch tells of the test set")
        check(len(set(losses)) == 4 and all(epoch["validation_loss"] != loss for epoch, loss in zip(epochs, losses)), f"{losses}")
        check(result["best_epoch"] == result["tested_epoch"] == best + 1, f"{folder}: {result} {losses}")
        check(abs(result["best_value"] - losses[best]) < 1e-6, f"{folder}: {result} {losses}")
        for kind in ("loss", "accuracy"):
            check(abs(result[f"ema_validation_{kind}"] - epochs[best][f"ema_validation_{kind}"]) < 1e-6, f"{folder}: {result}")
        for option, name in ((["--ema"], "ema_test"), ([], "test")):
            done = dtrain("eval", folder, *option)
            check(re.search(r"test loss +(\S+)", done.stdout)[1] == f"{result[name + '_loss']:.4f}", f"{folder}: {done.stdout} {result}")
        line = f"  average of the weights: test loss {result['ema_test_loss']:.4f}  "
        check(any(text.startswith(line) for text in told), f"{folder}: {line} is not in {told}")


def test_resumed_at_its_end():
    """There is nothing left but to tell the result, the average's too."""
    before = summary("alone")
    train("alone", 1, "--resume")
    after = summary("alone")
    check(all(abs(before[name] - after[name]) < 1e-6 for name in ("ema_test_loss", "ema_test_accuracy")), f"{before} {after}")


def test_errors():
    never = ("--config", "ema.json", "--run", "never", "--set")
    refused(78, "train.ema", *never, "distributed.strategy=parameter_server", *sets('distributed.parameter_server={"mode":"async"}'), ranks=2)
    refused(64, "train.ema: expected a number >= 0 and < 1", *never, "train.ema=1")
    refused(64, "checkpoint.best: there is no average of the weights (set train.ema", *never, "train.ema=0",
            *sets("checkpoint.best=ema_test_loss"))
    refused(64, "with data.validation the test set is for the end", *never, "data.validation=0.25", *sets("checkpoint.best=ema_test_loss"))
    refused(78, "no average of the weights (leave --ema out", "eval", "--ema", checkpoint_of("from-0.5", N_STEPS))


new_folder()
write_json("ema.json", CONFIG)
test_averages()
test_resume()
test_turned_on_and_off()
test_weights_of_another_run()
test_records()
test_validation()
test_resumed_at_its_end()
test_errors()
finish()
