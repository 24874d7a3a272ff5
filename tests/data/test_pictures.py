"""data.format "images" with JPEG: Pillow decodes the same pixels, as training and predict show; and bad files are named.

usage: DTRAIN=... MPIEXEC=... test_pictures.py"""
import io
import os
import re
import shutil

import pypi  # before the packages
from checks import check, dtrain, finish, need, new_folder, refused, sets, skip, write, write_json

need("numpy", "PIL")
import numpy
from PIL import Image

CLASSES = ("ant", "bee", "cow", "dog")
KINDS = ({"quality": 90}, {"quality": 60, "progressive": True}, {"quality": 80, "subsampling": 0}, {"quality": 75, "optimize": True})


def encode(array, mode=None, **options):
    out = io.BytesIO()
    Image.fromarray(array).convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def write_sets(grey):
    """The same images as JPEG, and as what Pillow makes of it."""
    random = numpy.random.default_rng(3)
    for split, n in (("train", 9), ("test", 3)):
        for c, name in enumerate(CLASSES):
            for k in range(n):
                shape = (13, 11) if grey else (13, 11, 3)
                smooth = numpy.clip(60 * c + 20 * random.standard_normal(shape), 0, 255).astype(numpy.uint8)
                content = encode(smooth, **KINDS[k % len(KINDS)])
                write(f"jpeg/{split}/{name}/{k}.jpg", content)
                os.makedirs(f"png/{split}/{name}", exist_ok=True)
                Image.open(io.BytesIO(content)).save(f"png/{split}/{name}/{k}.png")


def train(name, channels, folder, ranks=1):
    config = {"data": {"format": "images", "dir": folder},
              "model": {"input": [channels, 13, 11], "layers": [{"type": "flatten"}, {"type": "dense", "units": len(CLASSES)}]},
              "train": {"epochs": 2, "batch": {"global": 8}}, "report": False}
    write_json(f"{name}.json", config)
    done = dtrain("--config", f"{name}.json", "--run", f"runs/{name}", ranks=ranks, code=None)
    if "built without libjpeg" in done.stderr:
        skip("this dtrain was built without libjpeg")
    hashed = re.search(r"hash of the weights (\w+)", done.stderr)
    check(done.returncode == 0 and hashed, f"{name}: {done.returncode} {done.stderr}")
    return hashed and hashed[1]


def test_same_pixels(channels):
    write_sets(channels == 1)
    by_jpeg, by_png = (train(f"{folder}-{channels}", channels, folder) for folder in ("jpeg", "png"))
    check(by_jpeg == by_png, f"{channels} channels: {by_jpeg}, Pillow's pixels {by_png}")
    check(train(f"two-{channels}", channels, "jpeg", 2) is not None, "two ranks")
    folder = f"runs/jpeg-{channels}/checkpoints"
    checkpoint = os.path.join(folder, max(os.listdir(folder)))
    for path in ("test/bee/1", "test/dog/2"):
        told = [dtrain("predict", checkpoint, "--invert", "no", f"{kind}/{path}.{end}").stdout.replace(kind, "").replace(end, "").split()
                for kind, end in (("jpeg", "jpg"), ("png", "png"))]
        check(told[0] == told[1] and "class" in told[0], f"predict {path}: {told}")


FLAWS = (lambda content: content[:-2] + bytes(9) + content[-2:],  # extra bytes before the end
         lambda content: content[:11] + b"\2\1" + content[13:],  # JFIF 2.01
         lambda content: content[:20] + b"\7" + content[20:],  # an extra byte between two segments
         lambda content: content[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\7" + content[20:])  # colours of an unknown kind


def write_flawed():
    """Of each class and split, two of the images break a rule; and what Pillow reads of them."""
    n = {"train": 0, "test": 0}
    for split in n:
        for name in CLASSES:
            for k in range(2):
                path = f"jpeg/{split}/{name}/{k}.jpg"
                with open(path, "rb") as file:
                    content = FLAWS[n[split] % len(FLAWS)](file.read())
                write(path, content)
                Image.open(io.BytesIO(content)).save(f"png/{split}/{name}/{k}.png")
                n[split] += 1
    return n["train"], n["test"]


def test_flawed():
    """They are used, and counted once: whatever ranks there are, and whoever reads them."""
    def warned(done, n, about):
        lines = [line for line in done.stderr.splitlines() if "break a rule" in line]
        wanted = f"dtrain: warning: JPEG images that break a rule of the format, such as by extra bytes: {n}; they have all their pixels and are used"
        check(lines == [wanted], f"{about}: {lines}, not {wanted}")

    n_train, n_test = write_flawed()
    check(train("flawed", 3, "jpeg") == train("mended", 3, "png"), "Pillow reads other pixels of images that break a rule")
    for ranks in (1, 3):
        for settings, n in (((), n_train + n_test), (("data.sharding=global",), n_train + n_test), (("data.sharding=replicate",), n_train + n_test),
                            (("data.validation=6",), n_train)):
            again = f"runs/again-{ranks}{''.join(settings)}"
            warned(dtrain("--config", "flawed.json", "--run", again, *sets(*settings), ranks=ranks), n, (ranks, settings))
    check("break a rule" not in dtrain("--config", "mended.json", "--run", "runs/none").stderr, "a warning of PNG files")


def test_bad_files():
    image = numpy.full((13, 11, 3), 90, numpy.uint8)
    good = encode(image)
    for content, text in ((good[:-9], "train/cow/bad.jpg: damaged JPEG: Premature end of JPEG file (save it again)"),
                          (good[:200], "damaged JPEG: "), (b"\xff\xd8\xff", "damaged JPEG: "),
                          (encode(image[:12]), "12x11 pixels high and wide, model.input is 13x11 (set data.resize)"),
                          (good[:20] + b"\xff\xc0\x00\x11" + good[24:], "damaged JPEG: "),
                          (encode(image, "CMYK"), "cow/bad.jpg: a JPEG of 4 colours, such as CMYK")):
        write("jpeg/train/cow/bad.jpg", content)
        for part in ("jpeg/train: 1 bad image: cow/bad.jpg: ", text.split(" (")[0].replace("train/", "", 1)):
            refused(65, part, "train", "--config", "jpeg-3.json", "--run", "runs/bad")


new_folder()
test_same_pixels(1)
shutil.rmtree("jpeg")
shutil.rmtree("png")
test_same_pixels(3)
test_flawed()
test_bad_files()
finish()
