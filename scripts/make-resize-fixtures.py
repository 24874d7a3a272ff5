#!/usr/bin/env python3
"""What Pillow makes of images of other sizes: tests/fixtures/resize.txt, for tests/unit/data/test_resize.c, which computes the same images.

usage: scripts/make-resize-fixtures.py >tests/fixtures/resize.txt        (Pillow 13.0, numpy)"""
import io
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))
import numpy  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402

BILINEAR = Image.Resampling.BILINEAR
MODES = {1: lambda image, size, ground: image.resize(size, BILINEAR), 2: lambda image, size, ground: ImageOps.pad(image, size, BILINEAR, color=ground),
         3: lambda image, size, ground: ImageOps.fit(image, size, BILINEAR)}
# channels, height, width; channels, height and width of the model's input; background
SIZES = [(3, 37, 53, 3, 12, 10, 255), (1, 61, 20, 1, 19, 20, 0), (3, 9, 7, 3, 11, 14, 128), (3, 100, 30, 1, 7, 33, 255), (1, 5, 90, 1, 11, 11, 40), (3, 64, 64, 3, 8, 16, 255)]
PHOTO = (3, 120, 163)


def image(channels, height, width, smooth):
    c, y, x = numpy.indices((channels, height, width))
    if smooth:
        values = 128 + 60 * numpy.sin(x / 17 + c) + 60 * numpy.cos(y / 11 + 2 * c)
    else:
        values = (7 * x + 11 * y + 40 * c + (x * x + 3 * y) // 16 * 5) % 256
    values = values.astype(numpy.uint8).transpose(1, 2, 0)
    return Image.fromarray(values[..., 0] if channels == 1 else values)


def write(name, values):
    print(f"{name}:", *values)


def write_results(source, sizes):
    for mode, change in MODES.items():
        channels, height, width, c, h, w, ground = sizes
        flat = source.convert("L" if c == 1 else "RGB")
        made = numpy.asarray(change(flat, (w, h), ground if c == 1 else (ground,) * 3)).reshape(h, w, c)
        write("case", (mode, *sizes))
        write("pixels", made.transpose(2, 0, 1).ravel())


print("# Images scaled by Pillow's BILINEAR, by scripts/make-resize-fixtures.py: mode (1 stretch, 2 fit, 3 crop) and sizes, then C, H, W.")
for sizes in SIZES:
    write_results(image(*sizes[:3], False), sizes)
packed = io.BytesIO()
image(*PHOTO, True).save(packed, "JPEG", quality=30)
write("jpeg", (len(packed.getvalue()), *packed.getvalue()))
for wanted in ((3, 4, 6, 255), (3, 9, 13, 0), (1, 15, 30, 255)):
    write_results(Image.open(packed), (*PHOTO, *wanted))
