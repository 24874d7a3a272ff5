"""Tables and arrays of numbers: csv and npy, classes and targets, class weights; against PyTorch in float64 (tests/fixtures/tables.txt).

usage: DTRAIN=... MPIEXEC=... test_tables.py"""
import importlib.util
import io
import os
import struct

import pypi  # before the packages
import checkpoint
from checks import SOURCE, check, checkpoint_of, dtrain, finish, need, new_folder, parts, read, read_json, records, refused, summary, write, write_json
from samples import number, safetensors

need("numpy")
import numpy

N_TRAIN, N_TEST = 40, 16
ROWS = {"train": slice(N_TRAIN), "test": slice(N_TRAIN, None)}
COLUMNS = ["area", "rooms, with \"bath\"", "depth"]
LOSSES = ("mean_squared_error", "mean_absolute_error")


def numbers(stream, *shape):
    return numpy.array([number(stream, i) for i in range(int(numpy.prod(shape)))]).reshape(shape)


def columns(stream, *scales):
    return numpy.stack([numbers(stream + k, N_TRAIN + N_TEST) * s + m for k, (s, m) in enumerate(scales)], 1)


FEATURES = columns(300, (1024, 50000), (1, 0), (0.015625, -3))
TARGETS = columns(310, (256, 0), (0.5, 0))
TARGETS[:, 0] += FEATURES[:, 0]
LABELS = (columns(320, (15, 15)).astype(int) % 7 // 3)[:, 0]
NAMES = ["ant", "bee", "cow, brown"]


# ---- files


def quoted(text):
    return f'"{text}"'.replace('"', '""')[1:-1] if '"' in text or "," in text else text


def table(header, rows, separator=",", end="\n"):
    return "".join(separator.join(quoted(str(x)) for x in row) + end for row in [header, *rows])


def rows_of(split, *parts_):
    return [[x for part in parts_ for x in (part[i] if isinstance(part[i], (list, numpy.ndarray)) else [part[i]])] for i in range(*ROWS[split].indices(len(LABELS)))]


def write_table(folder, separator=",", end="\n", start=""):
    for split in ROWS:
        rows = rows_of(split, [f"no. {i}" for i in range(len(LABELS))], FEATURES.tolist(), TARGETS.tolist(), [NAMES[k] for k in LABELS])
        write(f"{folder}/{split}.csv", start + table(["name", *COLUMNS, "price", "height", "kind"], rows, separator, end))


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def npz(path, **arrays):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    numpy.savez(path, **arrays)


def weights(n_outputs):
    tensors = {name: numbers(330 + k, *shape) / 2 for k, (name, shape) in enumerate(
        {"fc1.weight": (5, 3), "fc1.bias": (5,), "fc2.weight": (n_outputs, 5), "fc2.bias": (n_outputs,)}.items())}
    write(f"start{n_outputs}.safetensors", safetensors({name: ("F32", value.shape, struct.pack(f"<{value.size}f", *value.flat)) for name, value in tensors.items()}))


def config(data, n_outputs, loss="softmax_cross_entropy", **train):
    return {"data": {"shuffle": False, "sharding": "global", **data}, "report": False, "threads": 1, "log": {"every_steps": 1},
            "model": {"input": [3], "layers": [{"type": "dense", "units": 5, "activation": "tanh"}, {"type": "dense", "units": n_outputs}], "loss": loss},
            "train": {"epochs": 2, "batch": {"global": 8}, "lr_scaling": "none", "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}, **train}}


TARGET = {"target": ["price", "height"], "features": COLUMNS}
CLASS = {"label": "kind", "features": COLUMNS}


# ---- the tests


def golden():
    lines = [line.split(": ") for line in read(f"{SOURCE}/tests/fixtures/tables.txt").splitlines() if line[0] != "#"]
    return {name: [float(x) for x in values.split()] for name, values in lines}


def check_run(name, settings, expected, score, ranks=1, device="cpu"):
    """A run's losses of all steps and what it says of the test set."""
    run = f"{name}-{device}-{ranks}"
    write_json(f"{run}.json", {**settings, "device": device})
    n = settings["model"]["layers"][-1]["units"]
    if dtrain("--config", f"{run}.json", "--weights", f"start{n}.safetensors", "--run", run, ranks=ranks, code=0).returncode != 0:
        return None
    found = [*(record["loss"] for record in records(run, "step")), summary(run)["test_loss"], summary(run)[score]]
    check(len(found) == len(expected) and numpy.allclose(found, expected, rtol=2e-5, atol=2e-6), f"{run}: {found}, not {expected}")
    return run


def test_golden(expected):
    for n in (2, 3):
        weights(n)
    for device, ranks in (("ref", 1), ("cpu", 1), ("cpu", 3)):
        for loss in LOSSES:
            check_run(f"csv-{loss}", config({"format": "csv", "dir": "comma", **TARGET}, 2, loss), expected[loss], "test_r2", ranks, device)
        for name, train in (("weights", {"class_weights": [0.5, 1, 4]}), ("balanced", {"class_weights": "balanced"}),
                            ("smooth", {"class_weights": "balanced", "label_smoothing": 0.1})):
            check_run(f"csv-{name}", config({"format": "csv", "dir": "comma", **CLASS}, 3, **train), expected[name], "test_accuracy", ranks, device)
    micro = config({"format": "csv", "dir": "comma", **CLASS}, 3, class_weights="balanced", accumulate=2)
    check_run("csv-micro", micro, expected["balanced"], "test_accuracy", 2)


def test_forms(expected):
    """The same numbers in other forms give the same run."""
    both = {"mean_squared_error": (TARGETS, "test_r2", 2, {}), "balanced": (LABELS, "test_accuracy", 3, {"class_weights": "balanced"})}
    for folder, separator, end, start in (("semicolon", ";", "\r\n", ""), ("tab", "\t", "\n", "\ufeff"), ("open", ",", "\n", "")):
        write_table(folder, separator, end, start)
    write("open/test.csv", read("open/test.csv").rstrip("\n"))
    for folder in ("semicolon", "tab", "open"):
        check_run(folder, config({"format": "csv", "dir": folder, **TARGET}, 2, LOSSES[0]), expected[LOSSES[0]], "test_r2")
    for loss, (answers, score, n, train) in both.items():
        x, y = FEATURES, answers
        one_hot = numpy.eye(3)[LABELS] if n == 3 else y
        forms = {"f8": (x, y), "f4": (x.astype("f4"), y.astype("f4")), "big": (x.astype(">f8"), y.astype(">f4")), "hot": (x, one_hot),
                 "packed": (x, one_hot.astype("f4"))}
        for form, (a, b) in forms.items():
            for split, rows in ROWS.items():
                write(f"{form}-{n}/{split}-images.npy", npy(a[rows]))
                write(f"{form}-{n}/{split}-labels.npy", npy(b[rows]))
        npz(f"keras-{n}/train.npz", x_train=x[ROWS["train"]], y_train=y[ROWS["train"]], x_test=x[ROWS["test"]], y_test=y[ROWS["test"]])
        npz(f"medmnist-{n}/data.npz", train_images=x[ROWS["train"]], train_labels=y[ROWS["train"]], test_images=x[ROWS["test"]], test_labels=y[ROWS["test"]])
        npz(f"plain-{n}/data.npz", arr_0=x[ROWS["train"]], arr_1=y[ROWS["train"]], arr_2=x[ROWS["test"]], arr_3=y[ROWS["test"]])
        for where in [*(f"{form}-{n}" for form in forms), f"keras-{n}/train.npz", f"medmnist-{n}/data.npz", f"plain-{n}/data.npz"]:
            settings = config({"format": "npy", "dir": where}, n, loss if n == 2 else "softmax_cross_entropy", **train)
            check_run(where.replace("/", "-"), settings, expected[loss], score)


def test_scales():
    """The training set's numbers are in config.json, and so for eval; the part that validates is not among them."""
    run = "csv-mean_squared_error-cpu-1"
    scale = read_json(f"{run}/config.json")["data"]
    for key, array in (("scale", FEATURES), ("target_scale", TARGETS)):
        train = array[ROWS["train"]]
        check(numpy.allclose(scale[key]["mean"], train.mean(0), rtol=1e-12) and numpy.allclose(scale[key]["std"], train.std(0), rtol=1e-12), f"{key}: {scale[key]}")
    dtrain("eval", run, "--json", "eval.json", code=0)
    result = parts(read_json("eval.json"), "figures", "Result")[0]["figures"]
    check(abs(result["test R2"]["value"] - summary(run)["test_r2"]) < 1e-6, f"eval: {result}")
    report = dtrain("report", run, code=0).stdout
    check(f"test R2    {result['test R2']['value']:.4f}" in report and "R2 over step" in report and "accuracy" not in report, report)
    refused(78, "numbers, but the training set's mean and deviation are not known (name a run in place of --weights", "eval", "--config", f"{run}.json", "--weights", "start2.safetensors")
    settings = config({"format": "csv", "dir": "comma", "validation": 0.25, **TARGET}, 2, LOSSES[0])
    for ranks in (1, 3):
        write_json("held.json", settings)
        dtrain("--config", "held.json", "--run", f"held{ranks}", ranks=ranks, code=0)
    held = [read_json(f"held{ranks}/config.json")["data"]["scale"] for ranks in (1, 3)]
    check(held[0] == held[1] and held[0]["mean"] != scale["scale"]["mean"], f"with validation: {held}")
    check("validation_r2" in summary("held3"), "no R2 of the validation samples")


def tensors(path):
    header, data = checkpoint.split(checkpoint.read(path))
    return {name: numpy.frombuffer(data[slice(*header[name]["data_offsets"])], "<f4").reshape(header[name]["shape"]).astype(float) for name in header if name[:2] == "fc"}


def test_predictions():
    """predict prints classes, or targets in their own units, of a table without them; an ONNX file has the scales inside."""
    rows = [[*reversed(FEATURES[i].tolist()), f"new {i}"] for i in range(*ROWS["test"].indices(len(LABELS)))]
    write("new.csv", table([*reversed(COLUMNS), "remark"], rows))
    x = (FEATURES[ROWS["test"]] - FEATURES[ROWS["train"]].mean(0)) / FEATURES[ROWS["train"]].std(0)
    for run in ("csv-mean_squared_error-cpu-1", "csv-balanced-cpu-1"):
        w = tensors(checkpoint_of(run, 10))
        z = numpy.tanh(x @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T + w["fc2.bias"]
        dtrain("predict", run, "new.csv", "--csv", f"{run}.csv", code=0)
        found = [line.split(",") for line in read(f"{run}.csv").splitlines()]
        if "balanced" in run:
            expected = [NAMES[k] for k in z.argmax(1)]
            check([line.split(",", 1)[1].rsplit(",", 1)[0].strip('"') for line in read(f"{run}.csv").splitlines()[1:]] == expected, f"{run}: {found}, not {expected}")
            p = numpy.exp(z - z.max(1, keepdims=True))
            check(numpy.allclose([float(row[-1]) for row in found[1:]], 1 / p.sum(1), rtol=1e-4), f"{run}: probabilities {found}")
            continue
        z = z * TARGETS[ROWS["train"]].std(0) + TARGETS[ROWS["train"]].mean(0)
        check(found[0] == ["row", "price", "height"] and numpy.allclose([[float(v) for v in row[1:]] for row in found[1:]], z, rtol=1e-4, atol=1e-4), f"{run}: {found}, not {z}")
        if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
            import onnxruntime
            if dtrain("export", run, "table.onnx").returncode == 0:
                y = onnxruntime.InferenceSession("table.onnx", providers=["CPUExecutionProvider"]).run(None, {"input": FEATURES[ROWS["test"]].astype("f4")})[0]
                check(numpy.allclose(y, z, rtol=1e-3, atol=1e-3), f"ONNX: {y}, not {z}")
    write("renamed.csv", read("new.csv").replace("area", "size"))
    refused(65, 'renamed.csv: no column "area"', "predict", "csv-balanced-cpu-1", "renamed.csv")


def test_digits():
    """A table of pixels (as Kaggle's digits) trains as the same images do, to the bit."""
    images = (numpy.abs(numbers(400, N_TRAIN + N_TEST, 4, 4)) * 272).astype(numpy.uint8)
    settings = {"data": {"format": "csv", "dir": "digits", "label": "label", "shuffle": False}, "report": False, "threads": 1,
                "model": {"input": [1, 4, 4], "layers": [{"type": "conv2d", "filters": 2, "kernel": 3}, {"type": "flatten"}, {"type": "dense", "units": 3}]},
                "train": {"epochs": 1, "batch": {"global": 8}}}
    for split, rows in ROWS.items():
        write(f"digits/{split}.csv", table(["label", *(f"pixel{i}" for i in range(16))], [[LABELS[i], *images[i].flat] for i in range(*rows.indices(len(LABELS)))]))
        write(f"images/{split}-images.npy", npy(images[rows]))
        write(f"images/{split}-labels.npy", npy(LABELS[rows].astype("i2")))
    write_json("digits.json", settings)
    settings["data"] = {"format": "npy", "dir": "images", "shuffle": False}
    write_json("images.json", settings)
    for name in ("digits", "images"):
        dtrain("--config", f"{name}.json", "--run", f"{name}-run", code=0)
    check(summary("digits-run")["test_loss"] == summary("images-run")["test_loss"], "pixels in a table give other results than images")
    write("digits/train.csv", read("digits/train.csv").replace("\n", "\n0" + ",256" * 16 + "\n", 1))
    refused(65, "digits/train.csv: number 0 at index 0 is 256, no pixel, 0 to 255", "plan", "--config", "digits.json")


def test_columns():
    """Without a list all columns of numbers are features; one of text is left out, and said."""
    rows = [[f"house {i}", *FEATURES[i], NAMES[LABELS[i]]] for i in range(N_TRAIN)]
    for split in ROWS:
        write(f"all/{split}.csv", table(["name", *COLUMNS, "kind"], rows))
    write_json("all.json", config({"format": "csv", "dir": "all", "label": "kind"}, 3))
    done = dtrain("--config", "all.json", "--run", "all-run", code=0)
    check("columns of text left out: 'name'" in done.stderr, done.stderr)
    check(read_json("all-run/config.json")["data"]["features"] == COLUMNS and read_json("all-run/config.json")["data"]["classes"] == NAMES, "names are not in config.json")
    plan = dtrain("plan", "--config", "all.json", code=0).stdout
    check("left out: 'name'" in plan and "ant, bee" in plan, plan)


def test_faults():
    """Each names file, line and column, or what is there."""
    good = ["size,price,kind", "1,10,a", "2,20,b", "3,30,a", "4,40,b"]
    target, label = {"target": ["price"], "features": ["size"]}, {"label": "kind", "features": ["size"]}

    def lines(*changes):
        return "\n".join({**dict(enumerate(good)), **dict(changes)}.values()) + "\n"

    for name, content, data, text in (
            ("missing", lines((2, ",20,b")), target, 'bad/train.csv: line 3, column size: "" is no number (mend it, or leave the column out: data.features)'),
            ("text", lines((3, "3,n/a,a")), target, 'bad/train.csv: line 4, column price: "n/a" is no number'),
            ("nan", lines((3, "nan,30,a")), target, 'line 4, column size: "nan" is no number'),
            ("hexadecimal", lines((4, "0x10,30,a")), target, 'line 5, column size: "0x10" is no number'),
            ("infinite", lines((1, "1e999,30,a")), target, 'line 2, column size: "1e999" is no number'),
            ("comma", lines((1, '"1,5",10,a')), target, 'line 2, column size: "1,5" is no number'),
            ("more", lines((2, "2,20,b,9")), target, "line 3 has 4 fields, the header has 3"),
            ("fewer", lines((2, "2,20")), label, "line 3 has 2 fields, the header has 3"),
            ("quote", lines((3, '"3,30,a')), target, "a quote that does not end"),
            ("quote-last", lines()[:-2] + '"', target, "a quote that does not end"),
            ("quote-twice", lines()[:-2] + '"a""', target, "a quote that does not end"),
            ("unlabelled", lines((2, "2,20,")), label, 'line 3, column kind: "" is no class'),
            ("absent", lines(), {**target, "features": ["length"]}, 'no column "length", or it is named twice; there are size, price, kind'),
            ("both", lines(), {**target, "features": ["price"]}, 'no column "price", or it is named twice'),
            ("answers", lines(), {**label, "label": "sort"}, 'no column "sort"'),
            ("third", lines((2, "2,20,c")), label, "its classes are a, b, c; the model has 2"),
            ("one", lines((2, "2,20,a"), (4, "4,40,a")), label, "its classes are a; the model has 2"),
            ("inputs", lines(), {**label, "features": ["size", "price"]}, "2 columns of features, model.input has 1 numbers (set it to [2], or choose columns by data.features)"),
            ("header", good[0] + "\n", target, "no rows"),
            ("page", "<!DOCTYPE html><html></html>", target, "looks like"),
            ("zero", "size,price,kind\n1,2\0,3\n", target, "no table of text")):
        for split in ROWS:
            write(f"bad/{split}.csv", content)
        n = 1 if "target" in data else 2
        settings = config({"format": "csv", "dir": "bad", **data}, n, LOSSES[0] if n == 1 else "softmax_cross_entropy")
        settings["model"]["input"], settings["train"]["batch"]["global"] = [1], 2
        write_json(f"{name}.json", settings)
        refused(65, text, "plan", "--config", f"{name}.json")
    for name, data, text in (("unnamed", {}, "data.label"), ("wide", {"target": ["a", "b"]}, "data.target: 2 columns, the model has 1 outputs")):
        n = 1 if data else 2
        write_json(f"{name}.json", config({"format": "csv", "dir": "bad", **data}, n, LOSSES[0] if n == 1 else "softmax_cross_entropy"))
        refused(78, text, "plan", "--config", f"{name}.json")
    names = [f"{'x' * 30}{i}" for i in range(300)]
    write("bad/train.csv", table([*names, "kind"], [[*range(300), "a"], [*range(300), "b"]]))
    settings = config({"format": "csv", "dir": "bad", "label": "kind"}, 2)
    settings["model"]["input"] = [300]
    write_json("names.json", settings)
    refused(65, "bad/train.csv: the names of its columns take more than 8187 bytes (shorten them", "plan", "--config", "names.json")
    for value, about in ((numpy.nan, "is nan"), (numpy.inf, "is inf"), (1e300, "is 1e+300")):
        array = FEATURES.copy()
        array[7, 1] = value
        write("strange/train-images.npy", npy(array[ROWS["train"]]))
        write("strange/train-labels.npy", npy(LABELS[ROWS["train"]]))
        write_json("strange.json", config({"format": "npy", "dir": "strange", "validation": 0.25}, 3))
        refused(65, f"number 1 at index 7 {about}", "plan", "--config", "strange.json")
    write_json("few.json", config({"format": "csv", "dir": "comma", **CLASS}, 3, class_weights=[1, 2]))
    done = dtrain("--config", "few.json", "--run", "few", ranks=2, code=78)
    check(done.stderr.count("train.class_weights: 2 weights, the model has 3 classes (give one for each)") == 1, done)


new_folder()
write_table("comma")
test_golden(golden())
test_forms(golden())
test_scales()
test_predictions()
test_digits()
test_columns()
test_faults()
finish()
