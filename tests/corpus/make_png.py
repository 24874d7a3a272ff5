#!/usr/bin/env python3
"""Writes the seeds of fuzz_png into the folder png beside this script: each colour type, and what files do wrong."""
import pathlib
import struct
import zlib

folder = pathlib.Path(__file__).parent / "png"
folder.mkdir(exist_ok=True)

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, colour=GREY, depth=8, extra=b"", rows=None, interlaced=0):
    row_bytes = (width * CHANNELS[colour] * depth + 7) // 8
    if rows is None:
        rows = b"".join(bytes([y % 5]) + bytes((7 * x + 29 * y) % 256 for x in range(row_bytes)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    )


palette = chunk(b"PLTE", bytes(range(192)))
grey = png(28, 28)
seeds = {
    "grey": grey,
    "grey-1-bit": png(13, 7, depth=1),
    "grey-16-bit": png(5, 6, depth=16),
    "rgb": png(6, 5, RGB),
    "rgb-16-bit": png(3, 4, RGB, 16),
    "palette": png(9, 4, PALETTE, 4, chunk(b"PLTE", bytes(range(48))) + chunk(b"tRNS", bytes([0, 128, 255]))),
    "palette-8-bit": png(4, 4, PALETTE, 8, palette),
    "grey-alpha": png(4, 5, GREY_ALPHA),
    "rgb-alpha": png(5, 4, RGB_ALPHA),
    "interlaced": png(1, 1, rows=b"\0\x80", interlaced=1),
    "transparent-grey": png(4, 4, extra=chunk(b"tRNS", struct.pack(">H", 7))),
    "gamma": png(4, 4, extra=chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"sBIT", b"\x05") + chunk(b"bKGD", b"\0\1")),
    "text": png(2, 2, extra=chunk(b"zTXt", b"note\0\0" + zlib.compress(b"text " * 50))),
    "cut": grey[:-40],
    "too-few-rows": png(4, 4, rows=b"\0abcd"),
    "too-many-rows": png(2, 1, rows=b"\0ab\0cd"),
    "wrong-filter": png(2, 1, rows=b"\x09ab"),
    "wrong-crc": grey[:30] + b"\0" + grey[31:],
    "impossible-length": png(2, 2, rows=b"\0ab\0cd", extra=struct.pack(">I", 0x60000000) + b"zTXt"),
    "huge": png(2**31 - 1, 2**31 - 1, rows=b"\0"),
    "wide": png(4096, 1),
    "empty": png(0, 1, rows=b"\0"),
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0",
}
for name, content in seeds.items():
    (folder / name).write_bytes(content)
