"""Files of samples and weights, as other programs write them. Standard library only."""
import json
import struct
import zlib

from checkpoint import write


def number(stream, i):
    """Sixteenths from -15/16 to 15/16, from 32 bits mixed as in MurmurHash3's last step."""
    h = (i * 2654435761 + stream * 40503 + 12345) % 2**32
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return ((h >> 16) % 31 - 15) / 16


def idx(sizes, content):
    return struct.pack(f">4B{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + bytes(content)


def write_idx(folder, split, sizes, images, labels):
    """Images of these sizes, one after another, and their labels; split: train or t10k."""
    write(f"{folder}/{split}-images-idx3-ubyte", idx((len(labels), *sizes), images))
    write(f"{folder}/{split}-labels-idx1-ubyte", idx((len(labels),), labels))


def png(width, height, colour, rows):
    """Of 8 bits; colour: the number that PNG has for it; rows: the bytes of each."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    content = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def safetensors(tensors, metadata=None):
    """Of {name: (dtype, shape, bytes)}, as the safetensors package does: sorted by name, the header padded to a multiple of 8."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, content) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
