"""data.resize and data.background: images of any size train, to the same weights at any number of ranks; eval and predict see an image as the
training does; without data.resize the refusal proposes what works. usage: DTRAIN=... MPIEXEC=... test_sizes.py"""
import os
import random
import re

from checks import check, dtrain, finish, new_folder, refused, sets, write, write_json
from document import Document
from samples import png

CLASSES = ("fern", "moss", "reed")
GREY, RGB, GREY_ALPHA, RGB_ALPHA = 0, 2, 4, 6  # PNG's numbers
N = {"train": 12, "test": 6}


def write_images(folder, alpha=0):
    """Of many sizes; the classes differ where the middle is bright. Half of the pixels are transparent by `alpha`."""
    drawn = random.Random(5)
    for split, n in N.items():
        for c, name in enumerate(CLASSES):
            for k in range(n):
                width, height, colour = drawn.randint(3, 90), drawn.randint(3, 90), drawn.choice((GREY_ALPHA, RGB_ALPHA) if alpha else (GREY, RGB))
                channels = {GREY: 1, RGB: 3, GREY_ALPHA: 2, RGB_ALPHA: 4}[colour]

                def value(i, x, y):
                    opaque = 255 if drawn.random() < 0.5 else 255 - alpha
                    return opaque if alpha and i == channels - 1 else (80 * c + 3 * x + 2 * y + drawn.randint(0, 30)) % 256

                rows = [[value(i, x, y) for x in range(width) for i in range(channels)] for y in range(height)]
                write(f"{folder}/{split}/{name}/{k}.png", png(width, height, colour, rows))


def configure(folder, channels, **data):
    write_json("c.json", {"data": {"format": "images", "dir": folder, "sharding": "global", **data}, "report": False, "threads": 1,
                          "model": {"input": [channels, 9, 12], "layers": [{"type": "flatten"}, {"type": "dense", "units": len(CLASSES)}]},
                          "train": {"epochs": 3, "batch": {"global": 9}}, "distributed": {"deterministic": True, "leaf": 3}})


def train(run, ranks):
    done = dtrain("--config", "c.json", "--run", run, ranks=ranks)
    return re.search(r"hash of the weights (\w+)", done.stderr)[1], done.stdout.splitlines()[-1]


def test_same_everywhere():
    """Predict's classes of the test images are as many right ones as the training's test, and eval's, count."""
    seen = set()
    for folder, channels, data in (("opaque", 1, {"resize": "stretch"}), ("opaque", 3, {"resize": "fit"}), ("opaque", 3, {"resize": "fit", "background": 90}),
                                   ("opaque", 3, {"resize": "crop"}), ("glass", 3, {"resize": "fit", "background": "black"}),
                                   ("glass", 3, {"resize": "stretch"}), ("glass", 3, {"resize": "stretch", "background": 17}),
                                   ("glass", 1, {"resize": "crop", "background": "black"})):
        configure(folder, channels, **data)
        run = f"run-{len(seen)}"
        found = train(run, 1)
        check(found == train(f"{run}-3", 3), f"{folder} {data}: other weights with 3 ranks")
        images = [f"{folder}/test/{name}/{k}.png" for name in CLASSES for k in range(N["test"])]
        n = sum(row["class"] == image.split("/")[2] for row, image in zip(Document("predict", run, "--invert", "no", *images).rows("Images"), images))
        check(f"({n}/{len(images)})" in found[1], f"{folder} {data}: predict has {n} of {len(images)} right, the test says {found[1]}")
        check(dtrain("eval", run).stdout.splitlines()[-1].split(" after")[0] in found[1], f"{folder} {data}: eval says otherwise than {found[1]}")
        seen.add(found[0])
    check(len(seen) == 8, f"of 8 configurations only {len(seen)} differ")


def test_proposals():
    """Each thing that the refusal proposes is followed, and works."""
    configure("opaque", 3)
    refused(65, "(set data.resize to stretch, fit or crop)", "--config", "c.json", "--run", "r")
    for word in ("stretch", "fit", "crop"):
        dtrain("--config", "c.json", "--run", f"follow-{word}", *sets(f"data.resize={word}"))
    for setting, text in (("data.resize=zoom", "expected one of none, stretch, fit, crop"), ("data.background=256", "white, black or an integer 0..255"),
                          ("data.background=red", "white, black or an integer 0..255"), ("data.background=-1", "white, black or an integer 0..255")):
        refused(64, text, "plan", "--config", "c.json", *sets(setting))
    refused(64, "has a meaning only with data.format=images", "plan", "--config", "c.json", *sets("data.format=npy", "data.resize=fit"))


def test_no_class_by_background():
    """Two classes of one transparent icon, in ink a little darker or lighter than a grey: on one background none is told from the other by it."""
    for folder, background in (("icons", "white"), ("icons", "black")):
        for split, n in N.items():
            for c in (0, 1):
                for k in range(n):
                    ink = 120 + 16 * c
                    write(f"{folder}/{split}/{c}/{k}.png", png(16, 16, GREY_ALPHA, [[v for x in range(16) for v in (ink, 255 if 3 < x < 9 + k % 4 else 0)] for _ in range(16)]))
        write_json("icons.json", {"data": {"format": "images", "dir": folder, "background": background, "resize": "fit"}, "report": False,
                                  "model": {"input": [1, 8, 8], "layers": [{"type": "flatten"}, {"type": "dense", "units": 2}]},
                                  "train": {"epochs": 1, "batch": {"global": 8}}})
        dtrain("--config", "icons.json", "--run", f"icons-{background}")
        notes = {row["background"] for row in Document("predict", f"icons-{background}", "--invert", "no", "icons/test/0/1.png", "icons/test/1/1.png").rows("Images")}
        check(notes == {f"(transparent: on {background})"}, f"{background}: {notes}")


new_folder()
write_images("opaque")
write_images("glass", 200)
test_same_everywhere()
test_proposals()
test_no_class_by_background()
finish()
