"""What `dtrain predict` changes of an image, and that it says so: nothing that the training images do not give a reason for. Models that are
trained on dark borders, bright ones or both, grey or in colour, see images with either border, opaque or transparent, by a checkpoint and by
weights alone. usage: DTRAIN=... MPIEXEC=... test_backgrounds.py"""
import re

from checks import check, dtrain, finish, new_folder, write, write_json
from document import Document
from samples import png

SIDE = 6
LIGHT_ON_DARK, DARK_ON_LIGHT = " (light on dark: inverted)", " (dark on light: inverted)"
ON_WHITE, ON_BLACK = " (transparent: on white)", " (transparent: on black)"
ASK = " (dark on light: --invert yes if the training images were light on dark)"
GREY, RGB, GREY_ALPHA, RGB_ALPHA = 0, 2, 4, 6  # PNG's numbers


def picture(colour, border, inside, border_alpha=255):
    """A frame of one pixel around a square."""
    def pixel(x, y):
        framed = x in (0, SIDE - 1) or y in (0, SIDE - 1)
        value = border if framed else inside
        alpha = (border_alpha if framed else 255,) if colour in (GREY_ALPHA, RGB_ALPHA) else ()
        return (value,) * (3 if colour in (RGB, RGB_ALPHA) else 1) + alpha

    return png(SIDE, SIDE, colour, [sum((pixel(x, y) for x in range(SIDE)), ()) for y in range(SIDE)])


def train(name, channels, borders):
    """Two classes, told apart by the square's brightness; each has every border."""
    colour = GREY if channels == 1 else RGB
    for split in ("train", "test"):
        for label, inside in (("far", 90), ("near", 160)):
            for k in range(8):
                write(f"{name}/{split}/{label}/{k}.png", picture(colour, borders[k % len(borders)], inside + k))
    write_json(f"{name}.json", {"data": {"format": "images", "dir": name}, "report": False, "train": {"epochs": 1, "batch": {"global": 8}},
                                "model": {"input": [channels, SIDE, SIDE], "layers": [{"type": "flatten"}, {"type": "dense", "units": 2}]}})
    dtrain("--config", f"{name}.json", "--run", f"run-{name}")
    dtrain("export", f"run-{name}", f"{name}.safetensors")


def says(model, image, expected, *options, weights=False):
    source = ("--config", f"{model}.json", "--weights", f"{model}.safetensors") if weights else (f"run-{model}",)
    caption = Document("predict", *source, *options, image).parts[f"{image}, probabilities"]["caption"]
    found = re.match(r"class (?:far|near|\d), probability [\d.]+ %(.*)", caption)
    check(found and found[1] == expected, f"{model}, {image}, {options}, weights {weights}: {found and found[1]!r}, not {expected!r}")


def test_inversion():
    for channels, colour in ((1, GREY), (3, RGB)):
        for name, border in (("dark", 10), ("bright", 240)):
            write(f"{name}-{channels}.png", picture(colour, border, 128))
            train(f"on-{name}-{channels}", channels, [border])
        train(f"both-{channels}", channels, [10, 240])
    for model, image, expected in (("on-dark-1", "bright-1", DARK_ON_LIGHT), ("on-bright-1", "dark-1", LIGHT_ON_DARK), ("on-dark-1", "dark-1", ""),
                                   ("on-bright-1", "bright-1", ""), ("both-1", "bright-1", ""), ("both-1", "dark-1", ""),
                                   ("on-dark-1", "bright-3", DARK_ON_LIGHT),  # a grey model sees a photo of paper in grey
                                   ("on-dark-3", "bright-3", ""), ("on-bright-3", "dark-3", ""), ("on-dark-3", "bright-1", ""),
                                   ("both-3", "bright-3", "")):
        says(model, f"{image}.png", expected)
        says(model, f"{image}.png", "", "--invert", "no")
        says(model, f"{image}.png", " (inverted)", "--invert", "yes")
        says(model, f"{image}.png", ASK if model[-1] == "1" and "bright" in image else "", weights=True)
        says(model, f"{image}.png", " (inverted)", "--invert", "yes", weights=True)


def test_transparent():
    """Ink and chalk on nothing, and what is transparent but has a dark border, as the training images have."""
    for name, inside, border, alpha in (("ink", 0, 0, 0), ("chalk", 255, 0, 0), ("veil", 255, 30, 250)):
        write(f"{name}-1.png", picture(GREY_ALPHA, border, inside, alpha))
        write(f"{name}-3.png", picture(RGB_ALPHA, border, inside, alpha))
    write("opaque-1.png", picture(GREY_ALPHA, 10, 128))
    for model, image, expected in (("on-dark-1", "ink-1", ON_WHITE + DARK_ON_LIGHT), ("on-dark-1", "chalk-1", ON_BLACK), ("on-dark-1", "veil-1", ON_WHITE),
                                   ("on-bright-1", "chalk-1", ON_WHITE), ("on-bright-1", "ink-1", ON_WHITE), ("both-1", "chalk-1", ON_WHITE),
                                   ("on-dark-3", "chalk-3", ON_BLACK), ("on-dark-3", "ink-3", ON_WHITE), ("both-3", "chalk-3", ON_WHITE),
                                   ("on-dark-1", "opaque-1", "")):
        says(model, f"{image}.png", expected)
    says("on-dark-1", "chalk-1.png", ON_WHITE + ASK, weights=True)


new_folder()
test_inversion()
test_transparent()
finish()
