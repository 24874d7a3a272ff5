"""A checkpoint knows the data that it was trained with: `eval`, `report` and `--resume` refuse (65) classes of other names or in another
order, whatever the pictures, and a resume refuses training samples that have changed in place, however little. usage: DTRAIN=... MPIEXEC=... test_same_data.py"""
import os
import shutil

import checkpoint
from checks import check, dtrain, finish, new_folder, refused, sets, write, write_json
from samples import png, write_idx

SIDE = 4
GREY = 0
OTHER = "(use data with the same classes)"


def write_classes(folder, names, splits=("train", "test")):
    """The k-th class has pictures of the k-th brightness, whatever its name."""
    for split in splits:
        for k, name in enumerate(sorted(names, key=os.fsencode)):
            for i in range(4):
                write(os.path.join(folder, split, name, f"{i}.png"), png(SIDE, SIDE, GREY, [[(60 * k + i + x) % 256 for x in range(SIDE)]] * SIDE))


def config(name, n_classes, **data):
    write_json(f"{name}.json", {
        "data": {"format": "images", "dir": name, **data}, "train": {"epochs": 1, "batch": {"global": 4}}, "threads": 1, "report": False,
        "model": {"input": [1, SIDE, SIDE], "layers": [{"type": "flatten"}, {"type": "dense", "units": 4},
                                                       {"type": "dense", "units": n_classes}]}})


def trained(name, names, **data):
    write_classes(name, names)
    config(name, len(names), **data)
    dtrain("--config", f"{name}.json", "--run", f"run-{name}", ranks=2)


def newest(name):
    folder = f"run-{name}/checkpoints"
    return os.path.join(folder, max(os.listdir(folder)))


def changed(name, change, out):
    """The newest checkpoint of a run with other metadata, its CRC set right."""
    header, data = checkpoint.split(checkpoint.read(newest(name)))
    change(header["__metadata__"])
    checkpoint.write(out, checkpoint.join(header, data))
    return out


def resume(name, folder, *more):
    return ["--config", f"{name}.json", "--run", f"run-{name}", "--resume", "--data", folder, *sets("train.epochs=2"), *more]


# ---- names of classes


def test_other_names():
    """One name of them is enough, at either end, and so is an order that is not the folders'."""
    trained("pets", ["cat", "dog", "eel"])
    for number, there, before, after in ((0, ["ant", "dog", "eel"], "cat", "ant"), (1, ["cat", "cow", "eel"], "dog", "cow"),
                                         (2, ["cat", "dog", "eel "], "eel", "eel "), (0, ["Cat", "dog", "eel"], "cat", "Cat")):
        shutil.rmtree("others", ignore_errors=True)
        write_classes("others", there)
        shown = "', '".join(sorted(there))
        text = (f"class {number} was '{before}', now it is '{after}'; trained with the classes 'cat', 'dog', 'eel', the data have "
                f"'{shown}' {OTHER}")
        refused(65, text, "eval", "run-pets", "--data", "others")
        done = dtrain(*resume("pets", "others"), ranks=2, code=65)
        check(text in done.stderr, f"--resume: {done.stderr}")
    done = dtrain("report", "run-pets", "--data", "others", code=65)
    check("class 0 was 'cat', now it is 'Cat'" in done.stderr, f"report: {done.stderr}")
    turned = changed("pets", lambda metadata: metadata.update(class_names="dog/cat/eel"), "turned.safetensors")
    refused(65, "class 0 was 'dog', now it is 'cat'", "eval", turned)


def test_same_names():
    """In another folder, without a class among the test images, with samples held out, as bare weights, and where no names are known."""
    write_classes("moved", ["cat", "dog", "eel"])
    shutil.rmtree("moved/test/dog")
    check("/8)" in (done := dtrain("eval", "run-pets", "--data", "moved").stdout), done)
    dtrain(*resume("pets", "moved"), ranks=2)
    older = changed("pets", lambda metadata: metadata.pop("class_names"), "older.safetensors")
    for arguments in ([older], ["--config", "pets.json", "--weights", newest("pets")]):
        dtrain("eval", *arguments, "--data", "moved")
    shutil.rmtree("others")
    write_classes("others", ["bee", "cow", "fox"])
    dtrain("eval", older, "--data", "others")
    dtrain("eval", "--config", "pets.json", "--weights", newest("pets"), "--data", "others", ranks=2)
    dtrain("--config", "pets.json", "--data", "others", "--weights", newest("pets"), "--run", "run-more")
    trained("held", ["cat", "dog", "eel"], validation=0.25)
    check(checkpoint.split(checkpoint.read(newest("held")))[0]["__metadata__"]["class_names"] == "cat/dog/eel", "samples are held out")
    refused(65, "class 0 was 'cat', now it is 'bee'", "eval", "run-held", "--data", "others")


def test_exported_names():
    """The metadata of exported files have them, field 14 of ONNX's; files of weights that have none, none."""
    dtrain("export", "run-pets", "pets.onnx", "pets.safetensors")
    dtrain("export", "--config", "pets.json", "--weights", newest("pets"), "bare.onnx", "bare.safetensors")
    entry = b"\x0a\x0bclass_names\x12\x0bcat/dog/eel"
    metadata = bytes([14 << 3 | 2, len(entry)]) + entry
    check([metadata in checkpoint.read(f"{name}.onnx") for name in ("pets", "bare")] == [True, False], "ONNX")
    found = [checkpoint.split(checkpoint.read(f"{name}.safetensors"))[0]["__metadata__"].get("class_names") for name in ("pets", "bare")]
    check(found == ["cat/dog/eel", None], f"safetensors: {found}")


def test_many_names():
    """Long names and lists are cut in messages; the first difference is named wherever it is."""
    names = [f"{k:03d} of a long list of classes" for k in range(80)]
    trained("many", names)
    shutil.rmtree("others")
    write_classes("others", names[:-1] + ["zoo"])
    refused(65, "class 79 was '079 of a long list of classes', now it is 'zoo'; trained with the classes '000 of a long list of classes', "
            "'001 of a long list of classes', '002 of a long list of classes' and 77 more, the data have '000", "eval", "run-many", "--data", "others")


def test_any_bytes():
    """Names of folders are any bytes; a checkpoint has them as text that a terminal shows."""
    names = ["\x1b[2J", "a\"b\\c", "line\nline", "\udcff\udcfe", "é"]
    trained("bytes", names)
    dtrain("eval", "run-bytes", ranks=2)
    found = checkpoint.split(checkpoint.read(newest("bytes")))[0]["__metadata__"]["class_names"]
    check(found == "\\x1b[2J/a\"b\\c/line\\x0aline/é/\\xff\\xfe", repr(found))


def test_hostile_names():
    """In a checkpoint whose checksums fit."""
    for value, text in (("cat/dog", "it names 2 classes, its model has 3 outputs"), ("cat/dog/eel/", "it names 4 classes"),
                        ("", "it names 1 classes"), ("/" * 5000, "it names 5001 classes"), ("x" * (128 << 10) + "/y/z", "more than 131072 bytes"),
                        ("\x1b]0;owned\x07/\u202e/" + "e" * 300, "class 0 was '\\x1b]0;owned\\x07', now it is 'cat'")):
        path = changed("pets", lambda metadata, value=value: metadata.update(class_names=value), "hostile.safetensors")
        refused(65, text, "eval", path)


# ---- the fingerprint of the training samples

N = 12
IMAGES = [[(40 * k + 7 * x) % 256 for x in range(SIDE * SIDE)] for k in range(N)]
LABELS = [k % 2 for k in range(N)]
SAMPLES, OLDER = "the training samples have changed since then: ", "the training labels have changed since then: "


def flipped(k, x):
    """All images, but for one bit of one pixel."""
    return [[value ^ ((i, j) == (k, x)) for j, value in enumerate(image)] for i, image in enumerate(IMAGES)]


def swapped(rows, a, b):
    return [rows[{a: b, b: a}.get(i, i)] for i in range(len(rows))]


def write_train(images, labels):
    write_idx("digits", "train", (SIDE, SIDE), sum(images, []), labels)


def start(name, run, *settings, ranks=0):
    dtrain("--config", f"{name}.json", "--run", run, *sets(*settings), ranks=ranks)


def check_resume(name, run, text, about, *settings, ranks=0):
    """From the run, or a checkpoint, in a new folder; text: it is refused with that."""
    shutil.rmtree("again", ignore_errors=True)
    done = dtrain("--config", f"{name}.json", "--run", "again", f"--resume={run}", *sets("train.epochs=2", *settings), ranks=ranks,
                  code=65 if text else 0)
    check(not text or text in done.stderr and "(use the same data, or begin a new run)" in done.stderr, f"{about}: {done.stderr}")


def test_files():
    """A bit, two samples of one label, two labels, all pixels: each is another data set, for a reader of any share of it."""
    os.mkdir("digits")
    write_idx("digits", "t10k", (SIDE, SIDE), sum(IMAGES, []), LABELS)
    write_train(IMAGES, LABELS)
    config("digits", 2, format="idx")
    start("digits", "run-digits", ranks=2)
    check_resume("digits", "run-digits", None, "the same data", ranks=3)
    older = changed("digits", lambda metadata: metadata.pop("data_hash"), "older.safetensors")
    for about, images, labels, older_text in (
            ("the first bit", flipped(0, 0), LABELS, None), ("the last one", flipped(N - 1, SIDE * SIDE - 1), LABELS, None),
            ("neighbours", swapped(IMAGES, 3, 5), LABELS, None), ("far ones", swapped(IMAGES, 0, N - 2), LABELS, None),
            ("inverted", [[255 - value for value in image] for image in IMAGES], LABELS, None), ("labels", IMAGES, swapped(LABELS, 0, 1), OLDER),
            ("whole samples", swapped(IMAGES, 0, 1), swapped(LABELS, 0, 1), OLDER)):
        write_train(images, labels)
        check_resume("digits", "run-digits", SAMPLES, about, ranks=2)
        check_resume("digits", older, older_text, f"older, {about}")
    write_train(IMAGES, LABELS)


def test_given_names():
    """data.classes names the classes of files that have no names: in checkpoints, of validation samples and in eval."""
    given = 'data.classes=["cat","dög"]'
    start("digits", "run-given", given, "data.validation=0.25", ranks=2)
    check(checkpoint.split(checkpoint.read(newest("given")))[0]["__metadata__"]["class_names"] == "cat/dög", "its checkpoint")
    check("dög" in dtrain("eval", "run-given").stdout, "eval")
    check("Classes: cat, " in dtrain("plan", "--config", "digits.json", *sets(given)).stdout, "plan")
    refused(65, f"class 0 was 'cat', now it is 'a'; trained with the classes 'cat', 'dög', the data have 'a', 'b' {OTHER}",
            "--config", "digits.json", "--run", "run-given", "--resume", *sets("data.validation=0.25", 'data.classes=["a","b"]'))
    for value, code, text in (('["a"]', 78, "data.classes: 1 names for 2 classes (name each class)"), ('["a","b","c"]', 78, "3 names for 2 classes"),
                              ('["a/b","c"]', 78, 'data.classes[0]: "a/b" has a / in it (leave it out)'), ('["a","a"]', 64, "expected a name, each once"),
                              ('["a",""]', 64, "expected a name"), ('["a",1]', 64, "expected a name"), ('"a"', 64, "a list of 0..4096 names"),
                              (f'["a","{"b" * 8190}"]', 64, "8 kB in all"), ('["a","d\\u202eg"]', 64, "expected a name")):
        refused(code, text, "--config", "digits.json", "--run", "none", *sets(f"data.classes={value}"))
    refused(64, "has a meaning only with data.format=", "--config", "pets.json", "--run", "none", *sets(given))


def test_ranks():
    """However samples are shared, and whoever works, the sum is the same."""
    def of(run):
        return checkpoint.split(checkpoint.read(newest(run)))[0]["__metadata__"]["data_hash"]

    found = {}
    for ranks, *settings in ((1,), (2,), (3,), (2, "data.sharding=global"), (3, "data.sharding=replicate"),
                             (3, "distributed.strategy=parameter_server"), (2, "distributed.strategy=central"), (2, "distributed.strategy=pipeline", "distributed.pipeline.micro_batches=2")):
        run = f"run-ranks-{ranks}-{len(found)}"
        start("digits", run, *settings, ranks=ranks)
        found[ranks, *settings] = of(run.removeprefix("run-"))
    check(len(set(found.values())) == 1, found)
    for key in ("data.validation=0.25", "data.train_samples=11"):
        of_part = []
        for ranks in (1, 2):
            start("digits", f"run-part-{ranks}", key, ranks=ranks)
            of_part.append(of(f"part-{ranks}"))
            shutil.rmtree(f"run-part-{ranks}")
        check(of_part[0] == of_part[1] and of_part[0] not in found.values(), f"{key}: {of_part}")


def test_pictures():
    check_resume("pets", "run-pets", None, "the same pictures", ranks=2)
    write("pets/train/cat/0.png", png(SIDE, SIDE, GREY, [[x + 1 if x == 0 else x for x in range(SIDE)]] * SIDE))
    check_resume("pets", "run-pets", SAMPLES, "a picture", ranks=2)


def test_generated():
    """Another recipe, as of regression targets, gives other samples."""
    for name, model, data, settings in (
            ("line", {"input": [1], "layers": [{"type": "dense", "units": 1}], "loss": "mean_squared_error"}, {"format": "linear"},
             ("data.slope=2.5", "data.noise=0.25")),
            ("made", {"input": [1, 8, 8], "layers": [{"type": "flatten"}, {"type": "dense", "units": 3}]}, {"format": "synthetic"},
             ("data.noise=0.25", "data.seed=5"))):
        write_json(f"{name}.json", {"data": {**data, "train_samples": 16, "test_samples": 8}, "model": model, "threads": 1, "report": False,
                                    "train": {"epochs": 1, "batch": {"global": 4}}})
        start(name, f"run-{name}")
        check_resume(name, f"run-{name}", None, name, ranks=2)
        for setting in settings:
            check_resume(name, f"run-{name}", SAMPLES, f"{name}, {setting}", setting)


new_folder()
test_other_names()
test_same_names()
test_exported_names()
test_many_names()
test_any_bytes()
test_hostile_names()
test_files()
test_given_names()
test_ranks()
test_pictures()
test_generated()
finish()
