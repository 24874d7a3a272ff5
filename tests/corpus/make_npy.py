#!/usr/bin/env python3
"""Writes the seeds of fuzz_npy into the folder npy beside this script: headers of arrays, and archives."""
import io
import pathlib
import struct
import zipfile

folder = pathlib.Path(__file__).parent / "npy"
folder.mkdir(exist_ok=True)


def npy(descr="'|u1'", order="False", shape="(2, 3, 4)", version=1, n_bytes=24):
    text = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + bytes(range(n_bytes))


def archive(method, names=("images.npy", "labels.npy"), extra=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name in names:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type, info.extra = method, extra
            file.writestr(info, npy())
    return out.getvalue()


stored = archive(zipfile.ZIP_STORED)
seeds = {
    "images": npy(),
    "labels": npy("'<i8'", shape="(3,)"),
    "big-endian": npy("'>u2'", shape="(12, 1)"),
    "version-2": npy(version=2),
    "fortran": npy(order="True"),
    "structure": npy("[('a', '<i4')]", shape="(6,)"),
    "scalar": npy(shape="()"),
    "huge": npy(shape="(4611686018427387904, 8)"),
    "stored.npz": stored,
    "deflated.npz": archive(zipfile.ZIP_DEFLATED),
    "extra.npz": archive(zipfile.ZIP_DEFLATED, extra=b"\1\0\4\0abcd"),
    "twice.npz": archive(zipfile.ZIP_STORED, ("images.npy", "images.nqy")).replace(b"nqy", b"npy"),
    "cut.npz": stored[:-9],
    "empty.npz": archive(zipfile.ZIP_STORED, ()),
}
for name, content in seeds.items():
    (folder / name).write_bytes(content)
