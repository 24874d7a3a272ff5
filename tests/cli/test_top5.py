"""Top-5 accuracy: of a classifier of 20 classes every record has it, and it is what a sort of the logits counts; of 10 classes none has.

usage: DTRAIN=... MPIEXEC=... test_top5.py PRINT_LOGITS"""
import os
import sys

from checks import check, dtrain, finish, new_folder, read, records, run, sets, summary, write_json
from document import Report

PRINT_LOGITS = os.path.abspath(sys.argv[1])
N = 150  # test samples


def train(folder, n_classes, n_ranks, *arguments):
    """The last epoch's record and the summary."""
    config = {
        "data": {"format": "synthetic", "train_samples": 400, "test_samples": N, "noise": 0.6},
        "model": {"input": [1, 8, 8], "layers": [{"type": "flatten"}, {"type": "dense", "units": n_classes}]},
        "train": {"epochs": 1, "batch": {"global": 40}, "optimizer": {"lr": 0.01}}, "device": "cpu"}
    write_json(f"{folder}.json", config)
    dtrain("--config", f"{folder}.json", "--run", folder, *arguments, ranks=n_ranks)
    return records(folder, "epoch")[-1], summary(folder)


def answers_of(checkpoint, n_classes):
    """Logits and labels of the test samples."""
    values = memoryview(run(PRINT_LOGITS, checkpoint, N, "labels", code=0, text=False).stdout).cast("f")
    logits = values[N * 64:N * (64 + n_classes)].tolist()
    labels = [int(label) for label in values[N * (64 + n_classes):]]
    return [logits[i * n_classes:(i + 1) * n_classes] for i in range(N)], labels


def test_many_classes():
    for n_ranks in (1, 3):
        epoch, result = train(f"many-{n_ranks}", 20, n_ranks, *sets("report=false"))
        checkpoint = result["checkpoint"]
        logits, labels = answers_of(checkpoint, 20)
        order = [sorted(range(20), key=lambda k, z=z: (-z[k], k)) for z in logits]
        right = [sum(label in best[:n] for best, label in zip(order, labels)) for n in (1, 5)]
        check(right[0] == round(N * epoch["test_accuracy"]), f"{right} {epoch}")
        check(right[1] == round(N * epoch["test_top5_accuracy"]) == round(N * result["test_top5_accuracy"]), f"{right} {epoch} {result}")
        check(right[0] < right[1] < N, f"{right} says little")
        told = dtrain("eval", checkpoint).stdout
        check(f"test top-5 accuracy  {100 * right[1] / N:.2f} %" in told.splitlines(), told)


def test_validation():
    """Epochs have it of the validation samples, the result of these and of the test samples, by the weights of the best epoch."""
    for folder, more in (("last", []), ("best", ["checkpoint.best=validation_loss"])):
        epoch, result = train(folder, 20, 2, *sets("data.validation=0.3", "train.epochs=2", *more))
        n_best = 120 * epoch["validation_top5_accuracy"]
        check(abs(n_best - round(n_best)) < 1e-6 and epoch["validation_accuracy"] < epoch["validation_top5_accuracy"] < 1, f"{epoch}")
        check("test_top5_accuracy" not in epoch, f"{epoch}")
        check(abs(result["validation_top5_accuracy"] - epoch["validation_top5_accuracy"]) < 1e-6, f"{epoch} {result}")
        told = dtrain("eval", folder).stdout
        check(f"test top-5 accuracy  {100 * result['test_top5_accuracy']:.2f} %" in told.splitlines(), f"{told} {result}")


def test_shown():
    """The page has a curve of it and of the average's results; a report, also of two, has the last ones."""
    _, result = train("shown", 20, 1, *sets("data.validation=0.3", "train.ema=0.9"))
    report = Report("shown")
    for which in ("test", "validation"):
        wanted = {"accuracy": f"{which}_accuracy", "top 5": f"{which}_top5_accuracy", "accuracy, EMA": f"ema_{which}_accuracy", "loss, EMA": f"ema_{which}_loss"}
        shown = {name: report.figure("Result", f"{which} {name}") for name in wanted}
        check(shown == {name: result[key] for name, key in wanted.items()}, f"report: {shown}")
    row = Report("shown", "few").rows("Results")[0]
    check((row["top 5"], row["EMA"]) == (result["test_top5_accuracy"], result["ema_test_accuracy"]), f"compared: {row}")
    page = read("shown/report.html")
    for text in ("validation, EMA of the weights, after an epoch", "validation, top 5, after an epoch"):
        check(text in page, f"the page has no curve '{text}'")
    check("EMA" not in read("few/report.html"), "the page of a run without an average tells of one")


def test_few_classes():
    epoch, result = train("few", 10, 1)
    check("test_top5_accuracy" not in epoch and "test_top5_accuracy" not in result, f"{epoch} {result}")


new_folder()
test_many_classes()
test_validation()
test_few_classes()
test_shown()
finish()
