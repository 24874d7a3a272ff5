"""The same images in every format train to the same weights, to the bit, and files that are wrong are named. NumPy writes the arrays.

usage: DTRAIN=... MPIEXEC=... test_formats.py"""
import gzip
import io
import os
import re
import shutil
import struct
import zipfile

import pypi  # before the packages
from checks import check, dtrain, finish, need, new_folder, read, refused, write, write_json
from samples import write_idx

need("numpy")
import numpy

SHAPE = (3, 32, 32)
N_TRAIN, N_TEST = 115, 21


# ---- writers

def npy(array, **options):
    out = io.BytesIO()
    numpy.save(out, array, **options)
    return out.getvalue()


def npz(save=numpy.savez, **arrays):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def records(images, labels, coarse=False):
    return b"".join((b"\x07" if coarse else b"") + bytes([label]) + image.tobytes() for image, label in zip(images, labels))


def write_cifar10(folder, sets, end="", pack=bytes):
    images, labels = sets["train"]
    cuts = [0, 20, 50, 51, 90, N_TRAIN]
    for i in range(5):
        part = slice(cuts[i], cuts[i + 1])
        write(f"{folder}/data_batch_{i + 1}.bin{end}", pack(records(images[part], labels[part])))
    write(f"{folder}/test_batch.bin{end}", pack(records(*sets["test"])))


def write_cifar100(folder, sets):
    for split in sets:
        write(f"{folder}/{split}.bin", records(*sets[split], coarse=True))


def write_npy(folder, sets, change=lambda images: images, labels_type=numpy.int64, end="", pack=bytes):
    for split, (images, labels) in sets.items():
        write(f"{folder}/{split}-images.npy{end}", pack(npy(change(images))))
        write(f"{folder}/{split}-labels.npy{end}", pack(npy(labels.astype(labels_type))))


def write_npz(folder, sets, save):
    for split, (images, labels) in sets.items():
        write(f"{folder}/{split}.npz", npz(save, images=images.transpose(0, 2, 3, 1), labels=labels.reshape(-1, 1).astype(">u2")))


def channels_last(images):
    return numpy.ascontiguousarray(images.transpose(0, 2, 3, 1))


# ---- the program

def config(data_format, folder, shape=SHAPE, **data):
    return {"data": {"format": data_format, "dir": folder, **data},
            "model": {"input": list(shape), "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu"},
                                                       {"type": "max_pool2d", "size": 2}, {"type": "flatten"}, {"type": "dense", "units": 10}]},
            "train": {"epochs": 1, "batch": {"global": 24}}, "report": False}


def run(name, settings, *arguments, **options):
    write_json(f"{name}.json", settings)
    return dtrain(*arguments, "--config", f"{name}.json", **options)


def train(name, data_format, folder, ranks=1, **data):
    """What a run says of its weights, and its result."""
    done = run(name, config(data_format, folder, **data), "train", "--run", f"runs/{name}-{ranks}", ranks=ranks)
    hashed = re.search(r"hash of the weights (\w+)", done.stderr)
    check(hashed is not None, f"{name}: {done.stderr[-600:]}")
    return hashed and (hashed[1], done.stdout.splitlines()[-1])


def refuse(name, data_format, folder, text, code=65, shape=SHAPE, **data):
    write_json(f"{name}.json", config(data_format, folder, shape, **data))
    refused(code, text, "plan", "--data", folder, "--config", f"{name}.json")


# ---- the tests

def make_sets(shape=SHAPE):
    random = numpy.random.default_rng(4)
    return {split: (random.integers(0, 256, (n, *shape), dtype=numpy.uint8), random.integers(0, 10, n))
            for split, n in (("train", N_TRAIN), ("test", N_TEST))}


def test_same_weights(sets):
    os.mkdir("idx")
    for split, name in (("train", "train"), ("test", "t10k")):
        write_idx("idx", name, SHAPE, sets[split][0].tobytes(), sets[split][1].tolist())
    write_cifar10("cifar10", sets)
    write_cifar10("cifar10-gz", sets, ".gz", gzip.compress)
    write_cifar100("cifar100", sets)
    write_npy("npy", sets)
    write_npy("npy-last", sets, channels_last, numpy.int8, ".gz", gzip.compress)
    write_npy("npy-big", sets, labels_type=">i8")
    write_npz("npz", sets, numpy.savez)
    write_npz("npz-packed", sets, numpy.savez_compressed)
    write_zip64("npz-zip64", sets)
    for limit, ranks in ((0, 1), (47, 3)):
        expected = train(f"idx-{limit}", "idx", "idx", ranks, train_samples=limit)
        for data_format, folder in [("cifar", "cifar10"), ("cifar", "cifar10-gz"), ("cifar", "cifar100"), ("npy", "npy"), ("npy", "npy-last"),
                                    ("npy", "npy-big"), ("npy", "npz"), ("npy", "npz-packed"), ("npy", "npz-zip64")]:
            found = train(f"{folder}-{limit}", data_format, folder, ranks, train_samples=limit)
            check(found == expected, f"{folder}, {ranks} ranks, {limit} samples: {found}, by IDX {expected}")


def test_grey(sets):
    grey = {split: (numpy.ascontiguousarray(images[:, 0]), labels) for split, (images, labels) in sets.items()}
    write_npy("grey", grey)
    write_npy("grey-last", grey, lambda images: images[..., None])
    write_npy("grey-first", grey, lambda images: images[:, None])
    results = set()
    for folder in ("grey", "grey-last", "grey-first"):
        done = run(folder, config("npy", folder, (1, 32, 32)), "train", "--run", f"runs/{folder}")
        results.add((re.search(r"hash of the weights (\w+)", done.stderr) or [done.stderr])[0])
    check(len(results) == 1, f"grey images in three shapes: {results}")


def test_cifar_faults(sets):
    images, labels = sets["train"]
    refuse("absent", "cifar", "nowhere", "nowhere: no such folder (scripts/get-data cifar10 fetches it; or name the", 66)
    write("empty/data_batch_1", b"pickle")
    refuse("python", "cifar", "empty", "neither data_batch_1.bin nor train.bin is there, raw or .gz, but data_batch_1 (the version for Python is: fetch", 66)
    write_cifar10("missing", sets)
    os.remove("missing/data_batch_3.bin")
    refuse("missing", "cifar", "missing", "missing: data_batch_3.bin is missing, raw or .gz, beside data_batch_1.bin", 66)
    write_cifar10("both", sets)
    write_cifar100("both", sets)
    refuse("both", "cifar", "both", "both: holds the files of CIFAR-10 and those of CIFAR-100 (give each")
    for name, content, text in [
            ("cut", records(images[:9], labels)[:-1], "data_batch_4.bin: damaged, or cut off: no whole number of records of 3073 bytes"),
            ("none", b"", "data_batch_4.bin: empty file"),
            ("cut-gz", gzip.compress(records(images[:9], labels))[:-30],
             "data_batch_4.bin: damaged, or cut off: no whole number of records of 3073 bytes (fetch CIFAR-10's binary version again)"),
            ("bomb", gzip.compress(b"")[:-4] + struct.pack("<I", 3073 * 40000), "40000 records are impossible for a 20-byte file"),
            ("longer", gzip.compress(records(images[:9], labels))[:-4] + struct.pack("<I", 3073 * 8), "data_batch_4.bin: "),
            ("label", records(images[:3], [1, 11, 2]), "data_batch_4.bin: label 11 at index 52, model has 10 classes (0..9)"),
            ("html", b"<html>" * 3073, "data_batch_4.bin: label 60 at index 51"),
            ("packed-bad", gzip.compress(records(images[:9], labels))[:400] + b"\0" * 30, "data_batch_4.bin: ")]:
        write_cifar10(name, sets)
        write(f"{name}/data_batch_4.bin", content)
        refuse(f"cifar-{name}", "cifar", name, text)
    refuse("shape", "cifar", "cifar10", "data_batch_1.bin: images are 3x32x32, model.input is 1x28x28 (set model.input to [3, 32, 32])", shape=(1, 28, 28))


def header(text, version=1):
    """An array file with this dictionary."""
    text = text.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def good(descr="'|u1'", order="False", shape=f"({N_TRAIN}, 3, 32, 32)"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)


def test_npy_faults(sets):
    images, labels = sets["train"]
    body = images.tobytes()
    refuse("npy-absent", "npy", "nowhere", "nowhere: no such folder", 66)
    refuse("npy-empty", "npy", "empty", "empty: neither train-images.npy nor train.npz is there", 66)
    write_npy("two", sets)
    write_npz("two", sets, numpy.savez)
    refuse("npy-two", "npy", "two", "two/train.npz: which of it and two/train-images.npy is meant? (keep one)")
    faults = [
        ("magic", b"PK" + npy(images), "no NumPy array"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "no NumPy array; looks like a Git LFS pointer: git lfs pull fetches the file"),
        ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(99), "no NumPy array; looks like an HDF5 file, as Keras writes them (scripts/convert-data makes NumPy's arrays of it)"),
        ("matlab", b"MATLAB 5.0 MAT-file, Platform" + bytes(99), "no NumPy array; looks like a MATLAB file (scripts/convert-data makes NumPy's arrays of it)"),
        ("torch", b"PK\x03\x04" + bytes(99), "looks like a zip archive, as .pt files of PyTorch are (scripts/convert-data makes NumPy's arrays of it)"),
        ("pickle", b"\x80\x02" + bytes(99), "looks like a Python pickle, as old .pth files of PyTorch are (scripts/convert-data makes NumPy's arrays of it)"),
        ("version", header(good(), 4)[:12] + b"x" * 99, "version 4 of NumPy's format"),
        ("long", b"\x93NUMPY\x02\0" + struct.pack("<I", 1 << 30) + b"{" * 99, "a header of 1073741824 bytes, at most 4096"),
        ("short", npy(images)[:30], "ends too early"),
        ("struct", npy(numpy.zeros(3, [("a", "u1")])), "an array of structures"),
        ("text", npy(numpy.array(["abc"])), "elements of type U3, which are no numbers (save numbers)"),
        ("wide", header(good("'<u16'")) + body, "elements of type <u16 are too wide"),
        ("fortran", npy(numpy.asfortranarray(images)), "in Fortran order (save numpy.ascontiguousarray of the array)"),
        ("scalar", header(good(shape="()")) + b"x", "0 images but 115 labels in "),
        ("five", header(good(shape="(1, 1, 1, 1, 1)")) + b"x", "more than 4 dimensions"),
        ("huge", header(good(shape="(99999999999, 3, 32, 32)")) + body, "(99999999999, 3, 32, 32) elements are impossible for its size"),
        ("overflow", header(good(shape=f"({1 << 62}, 4, 32, 32)")) + body, "a dimension is no number, or too large"),
        ("digits", header(good(shape="(99999999999999999999999, 1)")) + body, "a dimension is no number, or too large"),
        ("negative", header(good(shape="(-1, 3, 32, 32)")) + body, "a dimension is no number, or too large"),
        ("order", header(good(order="Perhaps")) + body, "in Fortran order"),
        ("twice", header("{'shape': (1,), 'shape': (1,), }") + body, "descr, fortran_order and shape, each once"),
        ("lacks", header("{'descr': '|u1', 'shape': (1,), }") + body, "expected descr, fortran_order and shape"),
        ("other", header("{'descr': '|u1', 'colour': 3 }") + body, "descr, fortran_order and shape, each once"),
        ("open", header(good()[:-1]) + body, "expected"),
        ("after", header(good() + " x") + body, "expected descr, fortran_order and shape"),
        ("extra", npy(images) + b"more", "extra bytes after the array"),
        ("missing", npy(images)[:-999], "(115, 3, 32, 32) elements are impossible for its size"),
        ("cut", npy(images)[:-9], "ends too early"),
        ("packed-short", gzip.compress(npy(images)[:-9]), "ends too early"),
        ("size", npy(images[:, :, :, :31]), "images are 3x32x31, model.input is 3x32x32 (set model.input to [3, 32, 31])"),
        ("count", npy(images[:-1]), "114 images but 115 labels in "),
        ("none", npy(images[:0]), "0 images but 115 labels in ")]
    for name, content, text in faults:
        write_npy("wrong", sets)
        write("wrong/train-images.npy", content)
        refuse(f"npy-{name}", "npy", "wrong", text)
        refuse(f"npy-{name}-file", "npy", "wrong", "wrong/train-images.npy")
    odd = labels.copy()
    odd[77] = 10
    for name, content, text in [
            ("class", npy(odd), "train-labels.npy: label 10 at index 77, model has 10 classes (0..9)"),
            ("minus", npy(labels - 1), "train-labels.npy: label -1 at index "),
            ("largest", npy(numpy.full(N_TRAIN, 2**64 - 1, numpy.uint64)), "label 1.84467e+19 at index 0 is no class"),
            ("real", npy(labels + 0.5), "is no class"),
            ("hot", npy(numpy.eye(10, dtype=int)[labels] * 2), "is no class, or not one-hot"),
            ("wide", npy(numpy.eye(11, dtype=int)[labels]), "train-labels.npy: (115, 11), expected labels (N,), or one-hot (N, 10)")]:
        write_npy("wrong", sets)
        write("wrong/train-labels.npy", content)
        refuse(f"npy-{name}", "npy", "wrong", text)
    write_npy("wrong", sets)
    write("wrong/test-images.npy", npy(images[:N_TEST, :, :31]))
    refuse("npy-test", "npy", "wrong", "test-images.npy: test images are 3x31x32, the model is trained on 3x32x32")


def zipped(members, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def patched(content, at, fmt, value):
    content = bytearray(content)
    struct.pack_into(fmt, content, at, value)
    return bytes(content)


def claims(n_entries, n_bytes):
    """An archive of ZIP64 that is nothing but what it says of its directory."""
    end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n_entries, n_entries, n_bytes, 0)
    return end + b"PK\6\7" + struct.pack("<IQI", 0, 0, 1) + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)


def write_zip64(folder, sets):
    """With more members than ZIP has numbers for."""
    for split, (images, labels) in sets.items():
        members = [("images.npy", npy(images)), ("labels.npy", npy(labels)), *((f"{i}", b"") for i in range(65536))]
        write(f"{folder}/{split}.npz", zipped(members))


def test_npz_faults(sets):
    images, labels = sets["train"]
    both = [("images.npy", npy(images)), ("labels.npy", npy(labels))]
    plain, packed = zipped(both), zipped(both, compression=zipfile.ZIP_DEFLATED)
    end = len(plain) - 22
    entry = plain.index(b"PK\1\2")
    longer = len(both[0][1]) + 5
    faults = [
        ("text", b"some text, and no archive of any kind", "no zip archive, or one that is cut off"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "no zip archive; looks like a Git LFS pointer: git lfs pull fetches the file"),
        ("parquet", b"PAR1" + bytes(99), "no zip archive; looks like a Parquet file (scripts/convert-data makes NumPy's arrays of it)"),
        ("tiny", b"PK", "no zip archive, or one that is cut off"),
        ("cut", plain[:-9], "zip archive"),  # the rest of the sentence is libzip's
        ("after", plain + b"more", "damaged zip archive"),
        ("before", b"more" + plain, "no zip archive, or one that is cut off"),
        ("twice", patched(zipped([*both, ("lmages.npy", npy(images))]), 0, "<0s", b"").replace(b"lmages.npy", b"images.npy"), "two members of one name"),
        ("lzma", zipped(both, compression=zipfile.ZIP_LZMA), "images.npy is compressed by method 14"),
        ("encrypted", patched(patched(packed, packed.index(b"PK\1\2") + 8, "<H", 1), 6, "<H", 1), "images.npy is encrypted"),
        ("zip64", patched(plain, end + 16, "<I", 0xFFFFFFFF), "damaged zip archive"),
        ("zip64-size", patched(plain, entry + 24, "<I", 0xFFFFFFFF), "damaged zip archive"),
        ("zip64-claims", claims(2**40, 0), "damaged zip archive"),
        ("zip64-sizes", claims(2**40, 46 * 2**40), "damaged zip archive"),
        ("disks", patched(plain, end + 4, "<H", 1), "damaged zip archive"),
        ("entries", patched(patched(plain, end + 8, "<H", 9), end + 10, "<H", 9), "damaged zip archive"),
        ("offset", patched(plain, entry + 42, "<I", 5), "zip archive"),
        ("far", patched(plain, entry + 42, "<I", end), "zip archive"),
        ("sizes", patched(plain, entry + 24, "<I", 7), "damaged zip archive"),
        ("bomb", patched(patched(packed, packed.index(b"PK\1\2") + 24, "<I", 4000000000), 22, "<I", 4000000000), "a member's size is impossible"),
        ("longer", patched(patched(packed, packed.index(b"PK\1\2") + 24, "<I", longer), 22, "<I", longer), "damaged zip archive"),
        ("crc", patched(patched(plain, entry + 16, "<I", 7), 14, "<I", 7), "damaged zip archive: CRC error"),
        ("bits", patched(plain, 5000, "B", plain[5000] ^ 1), "damaged zip archive: CRC error"),
        ("inflate", patched(packed, 200, "<Q", 0), "damaged zip archive")]
    for name, content, text in faults:
        write_npz("wrong-zip", sets, numpy.savez)
        write("wrong-zip/train.npz", content)
        refuse(f"npz-{name}", "npy", "wrong-zip", text)
        refuse(f"npz-{name}-file", "npy", "wrong-zip", "wrong-zip/train.npz")
    write("wrong-zip/train.npz", zipped(both[:1]))
    refuse("npz-lacks", "npy", "wrong-zip", "no array labels in it, nor of another name for that, but images.npy (numpy.savez(", 66)
    for soname in ("libzip.so.4", "libzip.so.5"):
        write(f"no-zip/{soname}", b"no library")
    done = run("npz-alone", config("npy", "npz"), "plan", code=69, env={"LD_LIBRARY_PATH": os.path.abspath("no-zip")})
    check("npz/train.npz: libzip is not here" in done.stderr, f"without libzip: {done.stderr}")


def test_foreign(sets):
    """Whatever is read says what a foreign file is."""
    for folder in ("idx", "cifar10", "npy", "npz"):
        shutil.copytree(folder, f"foreign-{folder}")
    for k in range(40):
        write(f"foreign-images/train/{k % 10}/{k}.png", b"")
    write_json("weights.json", config("synthetic", "empty", train_samples=48, test_samples=9))
    places = [("idx", "foreign-idx/train-images-idx3-ubyte"), ("idx", "foreign-idx/t10k-labels-idx1-ubyte"), ("cifar", "foreign-cifar10/data_batch_3.bin"),
              ("npy", "foreign-npy/train-images.npy"), ("npy", "foreign-npy/test-labels.npy"), ("npy", "foreign-npz/train.npz"),
              ("images", "foreign-images/train/7/7.png"), (None, "w.safetensors"), (None, "w.json")]
    for content, text in ((b"\xfd7zXZ\0" + bytes(99), "looks like xz"), (b"BZh91AY&SY" + bytes(99), "looks like bzip2"),
                          (b"\x28\xb5\x2f\xfd" + bytes(99), "looks like zstd")):
        for data_format, path in places:
            kept = read(path, "rb") if os.path.exists(path) else b""
            write(path, content)
            if data_format == "images":
                refuse("foreign-images", "images", "foreign-images", text, validation=0.2)
            elif data_format:
                refuse(f"foreign-{data_format}", data_format, path.split("/")[0], text)
            elif path == "w.json":
                refused(78, f"w.json: no configuration; {text}", "plan", "--config", path)
            else:
                refused(65, text, "eval", "--config", "weights.json", "--weights", path)
            write(path, kept)


new_folder()
os.makedirs("empty")
drawn = make_sets()
test_same_weights(drawn)
test_grey(drawn)
test_cifar_faults(drawn)
test_npy_faults(drawn)
test_npz_faults(drawn)
test_foreign(drawn)
finish()
