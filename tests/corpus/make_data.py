#!/usr/bin/env python3
"""Writes the seeds of fuzz_data into the folder data beside this script: the files of small data sets, one behind the other."""
import gzip
import io
import pathlib
import re
import struct
import zipfile

here = pathlib.Path(__file__).parent
folder = here / "data"
folder.mkdir(exist_ok=True)
source = (here / "../fuzz/fuzz_data.c").read_text()
NAMES = re.findall(r'"([^"]+)"', source.split("names[] = {")[1].split("}")[0])
IDX, CIFAR, NPY, IMAGES = range(4)
VALIDATION = 16


def seed(kind, **files):
    """`files`: their content, by names with an underscore for each dash, dot and slash."""
    out = bytes([kind])
    for name, content in files.items():
        out += bytes([next(i for i, n in enumerate(NAMES) if re.sub(r"[-./]", "_", n) == name)]) + struct.pack("<H", len(content)) + content
    return out


def idx(*sizes):
    n = 1
    for size in sizes:
        n *= size
    return struct.pack(f">4B{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + bytes(i % 3 for i in range(n))


def npy(descr, shape, content):
    text = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + content


def npz(method, images, labels):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in (("images.npy", images), ("labels.npy", labels)):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            file.writestr(info, content)
    return out.getvalue()


def packed(content):
    return gzip.compress(content, mtime=0)


def record(coarse, label):
    return bytes([7] * coarse + [label]) + bytes(3072)


images = npy("|u1", "(5, 2, 4, 3)", bytes(range(120)))
labels = npy("<i4", "(5,)", struct.pack("<5i", 0, 299, 7, 1, 2))
first = npy("|u1", "(2, 3, 2, 4)", bytes(48))
seeds = {
    "idx": seed(IDX, train_images_idx3_ubyte=idx(5, 2, 3), train_labels_idx1_ubyte=idx(5)),
    "idx-held": seed(IDX + VALIDATION, train_images_idx3_ubyte=idx(5, 2, 3), train_labels_idx1_ubyte_gz=packed(idx(5))),
    "cifar100": seed(CIFAR, train_bin=record(1, 99) + record(1, 3)),
    "cifar100-gz": seed(CIFAR + 4, train_bin_gz=packed(record(1, 99) + record(1, 3))),
    "cifar100-held": seed(CIFAR + VALIDATION, train_bin=record(1, 1) + record(1, 2)),
    "cifar10-gz": seed(CIFAR, data_batch_1_bin=packed(record(0, 9)), data_batch_2_bin=packed(record(0, 1)), data_batch_3_bin_gz=packed(record(0, 4)),
                       data_batch_4_bin=packed(record(0, 5)), data_batch_5_bin=packed(record(0, 6) + record(0, 7))),
    "cifar-both": seed(CIFAR, data_batch_1_bin=record(0, 9), train_bin=record(1, 1)),
    "npy": seed(NPY, train_images_npy=images, train_labels_npy=labels),
    "npy-first": seed(NPY, train_images_npy_gz=packed(first), train_labels_npy=npy("|u1", "(2, 1)", b"\0\1")),
    "npy-held": seed(NPY + VALIDATION, train_images_npy=images, train_labels_npy=labels),
    "npz": seed(NPY + 12, train_npz=npz(zipfile.ZIP_STORED, images, labels)),
    "npz-deflated": seed(NPY, train_npz=npz(zipfile.ZIP_DEFLATED, images, labels)),
    "npy-big-endian": seed(NPY, train_images_npy=first, train_labels_npy=npy(">i8", "(2,)", struct.pack(">2q", 0, 1))),
    "images": seed(IMAGES, train_a_1=b"P5 2 3 255\n123456", train_a_2=b"P6\n# rgb\n2 3\n255\n" + bytes(18), train_b_1=b"P5 2 3 255 654321"),
    "images-held": seed(IMAGES + VALIDATION, train_a_1=b"P5 2 3 255\n123456", train_b_1=b"P5 2 3 255 654321", train_b_2=b"P5 2 3 255 654321"),
    "images-png": seed(IMAGES, train_a_1=(here / "png/grey").read_bytes(), train_b_2=b"P4 2 3 1"),
}
for name, content in seeds.items():
    (folder / name).write_bytes(content)
