"""Folders of images as people have them: names of the splits, folders in classes, files of other systems, a test set that is held out or not
there, images that cannot be read. Each trains to the same weights at any number of ranks; what is refused says what is there, and its cure works.
usage: DTRAIN=... MPIEXEC=... test_folders.py"""
import os
import re
import shutil

from checks import check, dtrain, finish, new_folder, read, refused, sets, summary, write, write_json
from document import Document
from samples import png, write_idx

CLASSES = ("ash", "elm", "yew")
N = {"train": 10, "test": 4}


def image(c, k):
    return png(5, 4, 0, [[(60 * c + 11 * k + 7 * x + y) % 256 for x in range(5)] for y in range(4)])


def write_set(folder, train="train", test="test", name=lambda c, k: f"{CLASSES[c]}/{k}.png"):
    shutil.rmtree(folder, ignore_errors=True)
    for split, part in (("train", train), ("test", test)):
        for c in range(3 * (part is not None)):
            for k in range(N[split]):
                write(os.path.join(folder, part, name(c, k)), image(c, k + 20 * (split == "test")))


def configure(**data):
    write_json("c.json", {"data": {"format": "images", "dir": "d", "sharding": "global", **data}, "report": False, "threads": 1,
                          "model": {"input": [1, 4, 5], "layers": [{"type": "flatten"}, {"type": "dense", "units": 3}]},
                          "train": {"epochs": 2, "batch": {"global": 6}},
                          **({} if data.get("sharding") == "shard" else {"distributed": {"deterministic": True, "leaf": 2}})})


def train(run, *settings, ranks=1):
    done = dtrain("--config", "c.json", "--run", run, *sets(*settings), ranks=ranks)
    return re.search(r"hash of the weights (\w+)", done.stderr), done


def same(about, expected=None, *settings):
    """The hash on one rank and on three, and the warnings."""
    shutil.rmtree("r1", ignore_errors=True)
    shutil.rmtree("r3", ignore_errors=True)
    (one, done), (three, _) = train("r1", *settings), train("r3", *settings, ranks=3)
    check(one and three and one[1] == three[1] and expected in (None, one[1]), f"{about}: {one and one[1]}, 3 ranks {three and three[1]}, not {expected}")
    return one and one[1], done


def test_names():
    configure()
    write_set("d")
    expected = same("train and test")[0]
    for train_name, test_name in (("train", "val"), ("Train", "Test"), ("training", "valid"), ("train", "validation")):
        write_set("d", train_name, test_name)
        same(f"{train_name} and {test_name}", expected)
    write_set("d", name=lambda c, k: f"{CLASSES[c]}/{'a' if k < 3 else 'b/c' if k < 7 else 'd'}/{k}.png")
    same("folders in classes", expected)
    write_set("d")
    for path in ("train/ash/Thumbs.db", "train/elm/desktop.ini", "train/yew/README", "test/ash/notes.TXT", "train/ash/labels.csv", "train/__MACOSX/ash/._0.png",
                 "train/ash/@eaDir/0.png", "train/elm/.hidden"):
        write(f"d/{path}", "no image")
    found = same("files beside images", expected)[1]
    check("4 files beside the images, such as Thumbs.db, passed over" in found.stderr, f"not counted: {found.stderr}")
    plan = Document("plan", "--config", "c.json")
    check(plan.figure("Samples", "other files, passed over") == 5, "plan's count")
    check("Classes: ash, elm, yew." in plan.prose, f"plan's names: {plan.prose}")


def test_held_out():
    """A quarter of each class; the test images are none of the training's, and another seed draws others."""
    write_set("d", "", None)
    configure(test=0.25)
    first, done = same("classes alone")
    check("test accuracy" in done.stdout and "/9)" in done.stdout, done.stdout)  # 2.5 of 10, rounded up
    check(Document("plan", "--config", "c.json").figure("Samples", "training") == 21, "the rest trains")
    check(same("another seed", None, "train.seed=5")[0] != first, "the seed does not matter")
    check("/9)" in dtrain("eval", "r1").stdout, "eval draws others")
    write_set("d", "train", None)
    same("train alone", None)
    write_set("d")
    refused(78, "data.test: d/test has test images already (leave it out)", "plan", "--config", "c.json")


def test_no_test_set():
    """It may be missing where validation samples are there, of any format."""
    write_set("d", test=None)
    configure()
    refused(66, "d: no test/ or val/ beside train/ (hold test images out of it: data.test, such as 0.2)", "train", "--config", "c.json", "--run", "none")
    dtrain("--config", "c.json", "--run", "cured", *sets("data.test=0.2"))
    configure(validation=0.2)
    done = same("validation alone")[1]
    check("validation accuracy" in done.stdout and "there is no test set" in done.stderr, done)
    check("test_accuracy" not in summary("r1") or summary("r1")["test_accuracy"] is None, "a test result without a test set")
    for c, name in enumerate(("idx", "idx-2", "idx-3")):
        os.makedirs(name)
        write_idx(name, "train", (4, 5), bytes(range(200)) * 3, [k % 3 for k in range(30)])
        done = dtrain("--config", "c.json", "--data", name, "--run", f"run-{name}", *sets("data.format=idx", f"data.validation={5 + c}"))
        check("validation accuracy" in done.stdout, done)


def test_refusals():
    """(what is there, format, text, the cure followed)"""
    for k, (paths, data_format, text, cure) in enumerate((
            (["ash/0.png", "elm/0.png", "yew/0.png"], "images", "no train/ is there, but ash, elm, yew (if these are the classes, hold test images out of them: data.test, such",
             None),
            ([f"{c}/{k}" for c in "gfedcba" for k in range(2)], "images", "no train/ is there, but a, b, c, d, e, f and 1 more (data.dir has train/CLASS/IMAGE", None),
            (["flowers/train/ash/0.png", "notes"], "images", "no train/ is there, but flowers, notes (say --data ", "flowers"),
            (["x/y/train/ash/0.png"], "images", "no train/ is there, but x (say --data ", "x/y"),
            (["cifar-10-batches-bin/data_batch_1.bin"], "cifar", "but cifar-10-batches-bin (say --data ", "cifar-10-batches-bin"),
            (["data_batch_1"], "cifar", "but data_batch_1 (the version for Python is", None),
            (["data/Training/ash/0.png"], "images", "no train/ is there, but data (say --data ", "data"),
            (["b/cifar-100-binary/train.bin"], "cifar", "but b (say --data ", "b/cifar-100-binary"), (["c/data_batch_1.bin.gz"], "cifar", "but c (say --data ", "c"),
            (["arrays/train.npz"], "npy", "neither train-images.npy nor train.npz is there, but arrays (say --data ", "arrays"),
            (["e/f/train-images.npy", "e/x"], "npy", "but e (say --data ", "e/f"), (["mnist.npz"], "npy", "but mnist.npz (name NumPy's archive or folder", None),
            (["d/train-images-idx3-ubyte.gz"], "idx", "but d (say --data ", "d"), (["e/f/train-images-idx3-ubyte"], "idx", "but e (say --data ", "e/f"),
            (["a/b/train-images.idx3-ubyte"], "idx", "but a (say --data ", "a/b"), (["digits.csv"], "idx", "but digits.csv (name the folder", None))):
        for path in paths:
            write(f"there-{k}/{path}", image(0, 1))
        configure()
        done = dtrain("plan", "--config", "c.json", "--data", f"there-{k}", *sets(f"data.format={data_format}"), code=66)
        check(text in done.stderr, f"{paths}: {done.stderr}")
        check(cure is None or f"(say --data there-{k}/{cure}, or" in done.stderr, f"{paths}: {done.stderr}")
        if cure is not None:
            followed = dtrain("plan", "--config", "c.json", "--data", f"there-{k}/{cure}", *sets(f"data.format={data_format}"), code=None)
            check("no train/ is there" not in followed.stderr and "(say --data" not in followed.stderr, f"{cure}: {followed.stderr}")


def test_loops():
    """A link that leads back, and folders without end, are refused at once, and named."""
    configure()
    for make in (lambda: os.symlink("..", "d/train/elm/odd"), lambda: os.symlink("/", "d/train/elm/odd"), lambda: os.makedirs("d/train/elm/odd" + "/x" * 9)):
        write_set("d")
        make()
        refused(65, "d/train/elm/odd: more than 8 folders deep", "--config", "c.json", "--run", "r")
        shutil.rmtree("d/train/elm/odd") if not os.path.islink("d/train/elm/odd") else os.remove("d/train/elm/odd")
    same("the cure is followed")


def test_bad():
    """Those of all ranks are named at once; as many as data.skip_bad are left out, the same at any number of ranks, and of test and validation too."""
    write_set("d")
    configure()
    for path, content in (("ash/3", b"GIF89a"), ("elm/7", b""), ("yew/0", image(0, 0)[:40]), ("yew/9", b"\xff\xd8\xff"), ("ash/8", b"GIF89a")):
        write(f"d/train/{path}.png", content)
    configure(sharding="shard")
    for ranks in (1, 2, 3):
        done = dtrain("train", "--config", "c.json", "--run", "r", *sets("data.skip_bad=4"), ranks=ranks, code=65)
        check(all(name in done.stderr for name in ("d/train: 5 bad images, data.skip_bad is 4: ", "ash/3.png, ash/8.png: no PNG", "elm/7.png", "yew/0.png", "yew/9.png")),
              f"{ranks} ranks: {done.stderr}")
    configure()
    write("d/test/elm/2.png", b"RIFF")
    (_, done), plain = same("skipped", None, "data.skip_bad=6"), set()
    check("6 bad images left out (data.skip_bad is 6): " in done.stderr and "elm/2.png" in done.stderr and "/11)" in done.stdout, done)
    check("/11)" in dtrain("eval", "r1").stdout, "eval")
    check("elm/2.png" in dtrain("eval", "r1").stderr, "eval says which")
    configure(sharding="shard")
    for settings in (("data.validation=5",), (), ("data.train_samples=25",)):
        for ranks in (1, 3):
            shutil.rmtree("r", ignore_errors=True)
            train("r", "data.skip_bad=6", *settings, ranks=ranks)
            plain.add((settings, re.search(r'"train_samples":(\d+)', read("r/metrics.jsonl"))[1]))
    check(len(plain) == 3, f"the number of samples depends on the ranks: {plain}")
    for path in ("ash/3", "elm/7", "yew/0", "yew/9", "ash/8"):
        os.remove(f"d/train/{path}.png")
    os.remove("d/test/elm/2.png")
    check(Document("plan", "--config", "c.json").figure("Samples", "training") == 25, "the count without them")
    configure()
    write("d/train/elm/bad.png", b"GIF89a")
    expected = same("one left out", None, "data.skip_bad=1")[0]
    os.rename("d/train/elm/bad.png", "d/train/elm/b\ta\nd.png")
    same("a name with control characters", expected, "data.skip_bad=1")


def test_plan():
    """A few images are decoded: what is wrong with all is found before a run, and the cure works; what is wrong with one may not be."""
    write_set("d")
    configure()
    dtrain("plan", "--config", "c.json")
    for size, cure in (("3, 5", "data.resize=stretch"), ("5, 4", "data.resize=fit"), ("4, 4", "model.input=[1, 4, 5]")):
        done = dtrain("plan", "--config", "c.json", *sets(f"model.input=[1, {size}]"), code=65)
        check("d/train: 16 bad images: " in done.stderr and all(word in done.stderr for word in cure.split("=")), done.stderr)
        dtrain("plan", "--config", "c.json", *sets(f"model.input=[1, {size}]", cure))
    for c in range(3):
        write(f"d/train/{CLASSES[c]}/0.png", b"RIFF")
    refused(65, "RIFF file, as WebP images are (convert the image to PNG first); plan reads 16 of 30", "plan", "--config", "c.json")
    dtrain("plan", "--config", "c.json", *sets("data.skip_bad=3"))
    dtrain("plan", "--config", "c.json", *sets("data.skip_bad=3", "data.validation=5"))
    shutil.rmtree("d/train/ash"), shutil.rmtree("d/train/elm")
    refused(65, "a folder for each class is wanted, two or more, but yew (move", "plan", "--config", "c.json")


new_folder()
test_plan()
test_names()
test_held_out()
test_no_test_set()
test_refusals()
test_loops()
test_bad()
finish()
