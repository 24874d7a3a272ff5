"""Checkpoints and records of runs, for tests. Standard library only.

checkpoint.py alike RUN...                  fails unless the newest checkpoints of the runs hold the same tensors to the bit: weights and
                                            optimizer state, not what compression has left
checkpoint.py same RUN...                   the same with what compression has left
checkpoint.py losses BOUND RUN...           fails unless losses and test results, of every step and epoch, are those of the first run
                                            within a relative BOUND
checkpoint.py without FILE OUT KEY...       FILE without these keys of its metadata, as an older dtrain wrote it
"""
import glob
import json
import struct
import sys
import zlib


def split(file):
    """The header, a dict, and the data of a checkpoint's bytes."""
    n = struct.unpack("<Q", file[:8])[0]
    return json.loads(file[8:8 + n]), file[8 + n:]


def join(header, data, text=None):
    """Their bytes, with the header's own CRC set right; text: the header as it is to be written."""
    header["__metadata__"]["header_crc"] = "0" * 8
    text = (json.dumps(header, separators=(",", ":")) if text is None else text).encode()
    text += b" " * (-(8 + len(text)) % 64)
    start = struct.pack("<Q", len(text)) + text
    at = start.index(b'"header_crc":"') + 14
    return start[:at] + b"%08x" % zlib.crc32(start) + start[at + 8:] + data


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def tensors(run, but=("__metadata__",)):
    header, data = split(read(max(glob.glob(f"{run}/checkpoints/step-*.safetensors"))))
    found = {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()
             if not name.startswith(but)}
    assert len(found) >= 8, list(found)
    return found


def losses(run):
    with open(f"{run}/metrics.jsonl") as file:
        records = [r for r in map(json.loads, file) if r["type"] in ("step", "epoch")]
    assert len(records) > 10, run
    return {(r["type"], r["step"]): (r.get("loss", r.get("train_loss")), r.get("test_loss", 0)) for r in records}


def check_losses(bound, first, *others):
    expected = losses(first)
    assert all(loss for loss, _ in expected.values()), expected
    for run in others:
        actual = losses(run)
        assert list(actual) == list(expected), run
        worst = max(abs(a - b) / max(abs(a), 1e-30) for key in expected for a, b in zip(expected[key], actual[key]))
        assert worst <= float(bound), (run, worst)


def check_alike(first, *others):
    for run in others:
        assert tensors(run, ("__metadata__", "compression.")) == tensors(first, ("__metadata__", "compression.")), run


def check_same(first, *others):
    for run in others:
        assert tensors(run) == tensors(first), run


def make_without(path, out, *keys):
    header, data = split(read(path))
    for key in keys:
        del header["__metadata__"][key]
    write(out, join(header, data))


if __name__ == "__main__":
    {"alike": check_alike, "same": check_same, "losses": check_losses, "without": make_without}[sys.argv[1]](*sys.argv[2:])
