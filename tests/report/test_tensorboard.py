"""Event files, by TensorBoard's own reader: the numbers of metrics.jsonl, histograms that fit checkpoints, confusions that fit results; also
of runs that were killed and resumed, and on several ranks.

usage: DTRAIN=... MPIEXEC=... test_tensorboard.py NO_PROTOBUF [MODULE], fake CUDA's"""
import glob
import io
import os
import sys

import pypi  # before the packages
import checkpoint
from checks import check, checkpoint_of, dtrain, finish, need, new_folder, records, refused, sets, skip, summary, write_json

NO_PROTOBUF = os.path.abspath(sys.argv[1])
DOUBLE = sys.argv[2:]
LR = 0.05
CONFIG = {
    "data": {"format": "synthetic", "train_samples": 200, "test_samples": 90, "sharding": "global"},
    "model": {"input": [1, 12, 12], "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"}, {"type": "flatten"},
                                               {"type": "dense", "units": 10}]},
    "train": {"epochs": 3, "batch": {"global": 20}, "optimizer": {"type": "sgd", "lr": LR}},
    "log": {"every_steps": 1}, "checkpoint": {"every_steps": 1, "keep": 100}, "tensorboard": True, "report": False}
TENSORS = {"conv1.weight": 36, "conv1.bias": 4, "fc1.weight": 4000, "fc1.bias": 10}
OF_STEP = {"loss/step": "loss", "accuracy/step": "accuracy", "learning_rate/step": "lr", "gradient_norm/step": "grad_norm",
           "images_per_s/step": "images_per_s"}
OF_EPOCH = {"loss/train": "train_loss", "loss/test": "test_loss", "accuracy/train": "train_accuracy", "accuracy/test": "test_accuracy",
            "learning_rate/epoch": "lr", "images_per_s/epoch": "images_per_s"}
CELL, RIGHT, WRONG = 24, (31, 97, 165), (196, 60, 40)  # pixels; colors of the confusion
LABELS = [[6], [12], [4], [9], [6], [14], [5], [10], [9], [15]]  # test samples of each


def train(folder, ranks, *settings, config="config.json", more=(), **options):
    return dtrain("--config", config, "--run", folder, *sets(*settings), *more, ranks=ranks if ranks > 1 else 0, **options)


def killed(folder, *settings):
    """A run of which rank 0 is killed in its step 17."""
    done = train(folder, 1, *settings, more=["--inject", "kill:rank=0,step=17"], code=None)
    check(done.returncode not in (0, 1), f"{folder}: {done}")


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(f"{folder}/tensorboard", size_guidance={"scalars": 0, "images": 0, "histograms": 0})
    found.Reload()
    return found


def weights(folder, step):
    import numpy
    header, content = checkpoint.split(checkpoint.read(checkpoint_of(folder, step)))
    return {name: numpy.frombuffer(content[slice(*header[name]["data_offsets"])], "<f4").astype(float) for name in TENSORS}


def check_scalars(folder, found):
    import numpy
    check(set(found.Tags()["scalars"]) == {*OF_STEP, *OF_EPOCH}, f"{folder}: scalars {found.Tags()['scalars']}")
    for tags, kind in ((OF_STEP, "step"), (OF_EPOCH, "epoch")):
        for tag, key in tags.items():
            got = [(event.step, numpy.float32(event.value)) for event in found.Scalars(tag)]
            expected = [(record["step"], numpy.float32(record[key])) for record in records(folder, kind) if record[key] is not None]
            same = [a for a, _ in got] == [a for a, _ in expected] and all(numpy.isclose(a, b, rtol=1e-6) for (_, a), (_, b) in zip(got, expected))
            check(same and got, f"{folder} {tag}: {got} and {expected}")


def is_histogram_of(histogram, numbers, tolerance):
    import numpy
    limits, counts = numpy.array(histogram.bucket_limit), numpy.array(histogram.bucket)
    largest = abs(numbers).max()
    below = [(numbers <= limit).sum() for limit in limits]  # one that is on a border may be on either side
    return (histogram.num == len(numbers) == counts.sum() and abs(histogram.min - numbers.min()) <= tolerance * largest and
            abs(histogram.max - numbers.max()) <= tolerance * largest and abs(histogram.sum - numbers.sum()) <= tolerance * abs(numbers).sum() + 1e-12 and
            numpy.isclose(histogram.sum_squares, (numbers ** 2).sum(), rtol=10 * tolerance) and
            abs(numpy.cumsum(counts) - below).max() <= max(2, 0.01 * len(numbers)))


def check_histograms(folder, found, with_gradients=True):
    tags = {f"weights/{name}" for name in TENSORS} | ({f"gradients/{name}" for name in TENSORS} if with_gradients else set())
    check(set(found.Tags()["histograms"]) == tags, f"{folder}: histograms {found.Tags()['histograms']}")
    epochs = [record["step"] for record in records(folder, "epoch")]
    for name in TENSORS:
        got = found.Histograms(f"weights/{name}")
        check([event.step for event in got] == epochs, f"{folder}: {name} at {[event.step for event in got]}")
        for event in got:
            check(is_histogram_of(event.histogram_value, weights(folder, event.step)[name], 1e-6), f"{folder}: weights of {name}, step {event.step}")
        for event in found.Histograms(f"gradients/{name}") if with_gradients else []:
            gradient = (weights(folder, event.step - 1)[name] - weights(folder, event.step)[name]) / LR
            check(is_histogram_of(event.histogram_value, gradient, 1e-3), f"{folder}: gradients of {name}, step {event.step}")


def share_in(cell, full):
    """The share of a label's samples that a cell of the picture shows: the color goes from white to `full` with its square root."""
    channel = min(range(3), key=lambda k: full[k])
    return ((255 - float(cell[CELL // 2, CELL // 2, channel])) / (255 - full[channel])) ** 2 if (cell == cell[0, 0]).all() else -1


def check_confusions(folder, found):
    import numpy
    from PIL import Image
    images, epochs = found.Images("confusion"), records(folder, "epoch")
    check([event.step for event in images] == [record["step"] for record in epochs], f"{folder}: confusions at {[event.step for event in images]}")
    for event, record in zip(images, epochs):
        pixels = numpy.array(Image.open(io.BytesIO(event.encoded_image_string)))
        check(pixels.shape == (10 * CELL, 10 * CELL, 3) == (event.height, event.width, 3), f"{folder}: a picture of {pixels.shape}")
        shares = numpy.array([[share_in(pixels[CELL * k:CELL * (k + 1), CELL * m:CELL * (m + 1)], RIGHT if k == m else WRONG) for m in range(10)]
                              for k in range(10)])
        exact = shares * LABELS
        counts = numpy.rint(exact)
        check(shares.min() >= 0 and abs(exact - counts).max() < 0.2 and (counts.sum(axis=1, keepdims=True) == LABELS).all() and
              numpy.trace(counts) == round(90 * record["test_accuracy"]), f"{folder}, step {event.step}: {record['test_accuracy']} and\n{exact}")


def check_all(folder, with_gradients=True):
    found = events(folder)
    check_scalars(folder, found)
    check_histograms(folder, found, with_gradients)
    check_confusions(folder, found)


def test_ranks():
    """One rank; two that step together; two that do not."""
    for folder, ranks, settings in (("one", 1, []), ("together", 2, []), ("ring", 2, ["distributed.allreduce=ring"]),
                                     ("priority", 2, ["distributed.order=priority"])):
        train(folder, ranks, *settings)
        check_all(folder)


def test_other_strategies():
    """Gradients are with several ranks, or where none waits for another nowhere."""
    server, pipeline, clock = "distributed.strategy=parameter_server", "distributed.strategy=pipeline", "distributed.parameter_server.mode=async"
    for folder, ranks, settings in (("server", 3, [server]), ("pipeline", 2, [pipeline]), ("async", 2, [server, clock]),
                                     ("alone", 2, ["distributed.average=false"])):
        train(folder, ranks, *settings)
        if folder in ("server", "pipeline"):
            check_all(folder)
        else:
            check(not any("gradient" in tag for tags in ("scalars", "histograms") for tag in events(folder).Tags()[tags]), f"{folder}: gradients")


def test_fake_gpu():
    """Weights and logits come from a GPU's memory."""
    train("gpu", 2, "device=cuda", env={"DTRAIN_CUDA_MODULE": DOUBLE[0], "FAKE_DEVICES": "2"})
    check_all("gpu", with_gradients=False)


def test_hosts():
    """Sums that ranks of several hosts share."""
    train("hosts", 3, env={"MPIR_CVAR_NUM_CLIQUES": "2"})
    check_all("hosts")


def test_regression():
    write_json("line.json", {"data": {"format": "linear", "train_samples": 64, "test_samples": 16}, "log": {"every_steps": 1}, "tensorboard": True,
                   "model": {"input": [1], "loss": "mean_squared_error", "layers": [{"type": "dense", "units": 1}]},
                   "train": {"epochs": 2, "batch": {"global": 16}}})
    train("line", 1, config="line.json")
    found = events("line")
    check("loss/test" in found.Tags()["scalars"], f"line: {found.Tags()}")
    check(not any("accuracy" in tag for tag in found.Tags()["scalars"]) and not found.Tags()["images"], f"line: {found.Tags()}")
    check(found.Histograms("weights/fc1.weight")[-1].histogram_value.num == 1, "line: its one weight")


def test_validation():
    """With validation samples, an average and many classes: each epoch has their results, and the end those of the test samples, once."""
    layers = [*CONFIG["model"]["layers"][:-1], {"type": "dense", "units": 20}]
    write_json("many.json", CONFIG | {"model": CONFIG["model"] | {"layers": layers}})
    train("many", 2, "data.validation=40", "train.ema=0.9", config="many.json")
    found, epochs = events("many"), records("many", "epoch")
    for kind, told in (("validation", epochs), ("test", [{"step": epochs[-1]["step"]} | summary("many")])):
        end = "_validation" if kind == "validation" else ""
        for tag, key in ((f"loss/{kind}", f"{kind}_loss"), (f"accuracy/{kind}", f"{kind}_accuracy"), (f"loss/ema{end}", f"ema_{kind}_loss"),
                         (f"accuracy/ema{end}", f"ema_{kind}_accuracy"), (f"accuracy/top5{end}", f"{kind}_top5_accuracy")):
            got = [(event.step, event.value) for event in found.Scalars(tag)]
            same = len(got) == len(told) and all(s == r["step"] and abs(v - r[key]) <= 1e-6 * abs(v) for (s, v), r in zip(got, told))
            check(same, f"many: {tag}: {got}, {told}")


def test_names():
    """The picture's description has the classes in the order of its rows."""
    layers = [{"type": "flatten"}, {"type": "dense", "units": 2}]
    write_json("names.json", {"data": {"format": "images", "dir": "animals"}, "model": {"input": [1, 2, 2], "layers": layers},
                              "train": {"epochs": 1, "batch": {"global": 2}}, "tensorboard": True})
    for place in ("train/zebra", "train/an <ant>", "test/zebra", "test/an <ant>"):
        os.makedirs(f"animals/{place}")
        for number in range(2):
            with open(f"animals/{place}/{number}.pgm", "wb") as file:
                file.write(b"P5 2 2 255\n" + bytes(4))
    train("names", 1, config="names.json")
    for folder, names in (("names", ": an <ant>/zebra"), ("one", "")):
        text = events(folder).SummaryMetadata("confusion").summary_description
        check(text == "a row for each true class, a column for each predicted class" + names, f"{folder}: {text}")


def test_killed():
    """A torn record at the end is passed over; what was done again counts once, as the second time had it."""
    killed("killed", "checkpoint.every_steps=4")
    files = glob.glob("killed/tensorboard/events.out.tfevents.*")
    check(len(files) == 1, f"killed: {files}")
    check([event.step for event in events("killed").Scalars("loss/step")] == list(range(1, 17)), "killed: what was told until then")
    with open(files[0], "r+b") as file:
        file.truncate(os.path.getsize(files[0]) - 5)
    check([event.step for event in events("killed").Scalars("loss/step")] == list(range(1, 16)), "killed: the last record is torn")
    train("killed", 1, "train.seed=1", more=["--resume"])
    check(len(glob.glob("killed/tensorboard/*")) == 2, "resumed: not another file")
    first = records("killed", "run")[-1]["step"]
    check(first == 16, f"resumed from step {first}")
    check_scalars_after_kill(first)


def check_scalars_after_kill(first):
    """Step `first` was torn, and is in metrics.jsonl alone."""
    got = {event.step: event.value for event in events("killed").Scalars("loss/step")}
    expected = {record["step"]: record["loss"] for record in records("killed", "step")}
    check(sorted(got) == sorted(set(expected) - {first}), f"after the kill: steps {sorted(got)}, {sorted(expected)}")
    check(all(abs(got[step] - expected[step]) <= 1e-6 * abs(expected[step]) for step in got), "after the kill: losses")
    check([event.step for event in events("killed").Scalars("loss/test")] == [10, 20, 30], "after the kill: epochs")


def test_back_in_time():
    """Steps 13 to 16 are taken twice, the second time otherwise."""
    killed("back", "checkpoint.every_steps=12")
    train("back", 1, "train.optimizer.lr=0.001", more=["--resume"])
    check_scalars("back", events("back"))


def test_off():
    train("off", 1, "tensorboard=false", "train.epochs=1")
    check(not os.path.exists("off/tensorboard"), "off: there are events")


def test_refused():
    refused(69, "\"tensorboard\": true: this dtrain was built without libprotobuf-c (install", "--config", "config.json", "--run", "bare",
            program=NO_PROTOBUF, ranks=2)
    check(not os.path.exists("bare"), "a refused run has a folder")


def test_linked():
    """Nothing is written where a link leads."""
    os.mkdir("linked")
    os.symlink("/tmp", "linked/tensorboard")
    done = train("linked", 1, code=73)
    check("linked/tensorboard: " in done.stderr.splitlines()[-1], f"linked: {done}")


new_folder()
write_json("config.json", CONFIG)
test_refused()
if "protobuf  none" in dtrain("--version").stdout:
    skip("this dtrain was built without libprotobuf-c")
test_off()
test_linked()
need("tensorboard", "numpy", "PIL")
test_ranks()
test_other_strategies()
test_hosts()
if DOUBLE:
    test_fake_gpu()
test_regression()
test_validation()
test_names()
test_killed()
test_back_in_time()
finish()
