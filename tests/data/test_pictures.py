"""data.format "images" with JPEG: Pillow decodes the same pixels, as training and predict show; and bad files are named.

usage: test_pictures.py DTRAIN MPIEXEC"""
import io
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import pypi

pypi.need("numpy", "PIL")
import numpy
from PIL import Image

DTRAIN, MPIEXEC = map(os.path.abspath, sys.argv[1:])
CLASSES = ("ant", "bee", "cow", "dog")
KINDS = ({"quality": 90}, {"quality": 60, "progressive": True}, {"quality": 80, "subsampling": 0}, {"quality": 75, "optimize": True})
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print("FAILED:", text)


def encode(array, **options):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "JPEG", **options)
    return out.getvalue()


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


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


def run(*arguments):
    return subprocess.run([DTRAIN, *arguments], capture_output=True, text=True, timeout=200, check=False)


def train(name, channels, folder, ranks=1):
    config = {"data": {"format": "images", "dir": folder},
              "model": {"input": [channels, 13, 11], "layers": [{"type": "flatten"}, {"type": "dense", "units": len(CLASSES)}]},
              "train": {"epochs": 2, "batch": {"global": 8}}, "report": False}
    with open(f"{name}.json", "w") as file:
        json.dump(config, file)
    done = subprocess.run([MPIEXEC, "-n", str(ranks), DTRAIN, "--config", f"{name}.json", "--run", f"runs/{name}"], capture_output=True, text=True,
                          timeout=200, check=False)
    if "built without libjpeg" in done.stderr:
        print("skipped: this dtrain was built without libjpeg")
        sys.exit(77)
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
        told = [run("predict", "--checkpoint", checkpoint, "--invert", "no", f"{kind}/{path}.{end}").stdout.replace(kind, "").replace(end, "")
                for kind, end in (("jpeg", "jpg"), ("png", "png"))]
        check(told[0] == told[1] and "class" in told[0], f"predict {path}: {told}")


def test_bad_files():
    image = numpy.full((13, 11, 3), 90, numpy.uint8)
    good = encode(image)
    for content, text in ((good[:-9], "train/cow/bad.jpg: damaged JPEG: Premature end of JPEG file (save it again)"),
                          (good[:200], "damaged JPEG: "), (b"\xff\xd8\xff", "damaged JPEG: "),
                          (encode(image[:12]), "12x11 pixels high and wide, model.input is 13x11 (scale it)"),
                          (good[:20] + b"\xff\xc0\x00\x11" + good[24:], "damaged JPEG: ")):
        write("jpeg/train/cow/bad.jpg", content)
        done = run("train", "--config", "jpeg-3.json", "--run", "runs/bad")
        name = text.split(" (")[0].replace("train/", "", 1)
        check(done.returncode == 65 and "jpeg/train: 1 bad image: cow/bad.jpg: " in done.stderr and name in done.stderr and done.stderr.count("\n") == 1,
              f"{text}: {done.returncode} {done.stderr}")
    out = io.BytesIO()
    Image.fromarray(image).convert("CMYK").save(out, "JPEG")
    write("jpeg/train/cow/bad.jpg", out.getvalue())
    done = run("train", "--config", "jpeg-3.json", "--run", "runs/bad")
    check(done.returncode == 65 and "cow/bad.jpg: a JPEG of 4 colours, such as CMYK" in done.stderr, f"CMYK: {done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_same_pixels(1)
        subprocess.run(["rm", "-r", "jpeg", "png"], check=True)
        test_same_pixels(3)
        test_bad_files()
        os.chdir("/")
    print("Pillow sees the same pixels" if not failures else f"{len(failures)} failures")
    sys.exit(bool(failures))


main()
