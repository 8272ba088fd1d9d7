"""The two binary formats of Xet, as far as a server must read them: xorbs of compressed chunks, shards of file recipes."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import pyarrow

STORED, LZ4, PLANES = range(3)
CHUNK_HEADER, SHARD_RECORD = 8, 48
FOOTER = b"XETBLOB"
LAST = b"\xff" * 32
HAS_VERIFICATION = 1 << 31


@dataclass(frozen=True)
class Term:
    """A run of chunks of one xorb."""

    xorb: str
    start: int
    end: int


@dataclass(frozen=True)
class Recipe:
    """A file as its terms."""

    sha256: str
    terms: list[Term]


def printed(digest: bytes) -> str:
    """A hash as Xet prints it: four little-endian words."""
    return "".join(digest[start : start + 8][::-1].hex() for start in range(0, 32, 8))


def offsets(xorb: bytes) -> list[int]:
    """Return the start of each chunk, and the end of the last."""
    found, position = [], 0
    while position + CHUNK_HEADER <= len(xorb) and not xorb.startswith(FOOTER, position) and xorb[position] == 0:
        found.append(position)
        position += CHUNK_HEADER + packed_size(xorb, position)
    return [*found, position]


def packed_size(xorb: bytes, position: int) -> int:
    return int.from_bytes(xorb[position + 1 : position + 4], "little")


def chunk(xorb: bytes, position: int) -> bytes:
    """The content of the chunk that begins there."""
    start = position + CHUNK_HEADER
    packed, kind = xorb[start : start + packed_size(xorb, position)], xorb[position + 4]
    if kind == STORED:
        return packed
    data = pyarrow.input_stream(BytesIO(packed), compression="lz4").read()  # an LZ4 frame
    return interleaved(data) if kind == PLANES else data


def interleaved(data: bytes) -> bytes:
    """Undo the grouping of every fourth byte, by which floats compress better."""
    out, start = bytearray(len(data)), 0
    for plane in range(4):
        length = len(range(plane, len(data), 4))
        out[plane::4] = data[start : start + length]
        start += length
    return bytes(out)


def recipes(shard: bytes) -> Iterator[Recipe]:
    """The files that a shard describes."""
    position = SHARD_RECORD
    while shard[position : position + 32] != LAST:
        # Flags also say whether the SHA-256 is there: of what huggingface_hub uploads it always is.
        flags, count = struct.unpack_from("<II", shard, position + 32)
        first = position + SHARD_RECORD
        terms = [term(shard, first + SHARD_RECORD * index) for index in range(count)]
        position = first + SHARD_RECORD * count * (2 if flags & HAS_VERIFICATION else 1)
        yield Recipe(printed(shard[position : position + 32]), terms)
        position += SHARD_RECORD


def term(shard: bytes, position: int) -> Term:
    _flags, _size, start, end = struct.unpack_from("<IIII", shard, position + 32)
    return Term(printed(shard[position : position + 32]), start, end)
