"""Top-5 accuracy: of a classifier of 20 classes every record has it, and it is what a sort of the logits counts; of 10 classes none has.

usage: DTRAIN=... MPIEXEC=... test_top5.py PRINT_LOGITS"""
import os
import sys

from checks import check, dtrain, finish, new_folder, read, records, run, sets, summary, write_json

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
        told = dtrain("eval", checkpoint).stderr
        check(told.splitlines()[-1] == f"test top-5 accuracy {100 * right[1] / N:.2f} %", told)


def test_validation():
    """Epochs have it of the validation samples, the result of these and of the test samples, by the weights of the best epoch."""
    for folder, more in (("last", []), ("best", ["checkpoint.best=validation_loss"])):
        epoch, result = train(folder, 20, 2, *sets("data.validation=0.3", "train.epochs=2", *more))
        n_best = 120 * epoch["validation_top5_accuracy"]
        check(abs(n_best - round(n_best)) < 1e-6 and epoch["validation_accuracy"] < epoch["validation_top5_accuracy"] < 1, f"{epoch}")
        check("test_top5_accuracy" not in epoch, f"{epoch}")
        check(abs(result["validation_top5_accuracy"] - epoch["validation_top5_accuracy"]) < 1e-6, f"{epoch} {result}")
        told = dtrain("eval", folder).stderr
        check(told.splitlines()[-1] == f"test top-5 accuracy {100 * result['test_top5_accuracy']:.2f} %", f"{told} {result}")


def test_shown():
    """The page has a curve of it and of the average's results; report, watch and the comparison tell the last ones."""
    _, result = train("shown", 20, 1, *sets("data.validation=0.3", "train.ema=0.9"))
    told = dtrain("report", "shown").stdout
    watched = dtrain("report", "--follow", "shown").stdout
    compared = dtrain("report", "shown", "few").stdout
    percent = {name: f"{100 * value:.2f} %" for name, value in result.items() if name.endswith("accuracy")}
    for text in (f"top 5 {percent['test_top5_accuracy']}", f"accuracy {percent['validation_accuracy']}, top 5 "
                 f"{percent['validation_top5_accuracy']}", f"EMA test accuracy {percent['ema_test_accuracy']}, loss "
                 f"{result['ema_test_loss']:.6g}; validation accuracy {percent['ema_validation_accuracy']}, loss "
                 f"{result['ema_validation_loss']:.6g}"):
        check(text in " ".join(told.split()), f"report: {text} is not in {told}")
    for name in ("test", "validation"):
        lines = watched[watched.index(f"\n{name} "):].splitlines()[2:4]
        check(lines[0].split() == ["top", "5", *percent[name + "_top5_accuracy"].split()], f"watch: {lines}")
        check(lines[1].startswith("  EMA ") and f"accuracy {percent['ema_' + name + '_accuracy']}," in lines[1], f"watch: {lines}")
    columns = compared.splitlines()[3].split()
    check(columns[:8] == ["verdict", "test", "accuracy", "top", "5", "test", "loss", "EMA"], f"{columns}")
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
