"""Read the texts in a binary file: runs of characters of one or two bytes, and what pictures say about themselves."""

import re
import struct
import zlib
from collections.abc import Iterator

RUNS = (
    (re.compile(rb"[\x20-\x7e]{8,}"), "ascii"),
    (re.compile(rb"(?:[\x20-\x7e]\x00){8,}"), "utf-16-le"),
    (re.compile(rb"(?:\x00[\x20-\x7e]){8,}"), "utf-16-be"),
)
PNG = b"\x89PNG\r\n\x1a\n"
MOST = 1 << 20


def readable(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of everything in a file that is readable, compressed texts of a PNG among it."""
    yield from runs(data)
    yield from metadata(data)


def metadata(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of what a PNG or a JPEG says about itself, which is no row of pixels by chance."""
    if data.startswith(b"\xff\xd8"):
        yield from runs(data[: data.find(b"\xff\xda")])
    for start, kind, content in chunks(data) if data.startswith(PNG) else ():
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"eXIf"):
            for part in (content, *decompressed(content)):
                yield from ((start, text) for _, text in runs(part))


def runs(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of runs of readable characters."""
    for pattern, encoding in RUNS:
        for run in pattern.finditer(data):
            yield run.start(), run[0].decode(encoding)


def chunks(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (offset, kind, content) of the chunks of a PNG, as far as it is whole."""
    start = len(PNG)
    while start + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, start)
        yield start, kind, data[start + 8 : start + 8 + length]
        start += 12 + length


def decompressed(content: bytes) -> Iterator[bytes]:
    """Yield what is compressed in the text chunk of a PNG, behind its keyword and the bytes that say how."""
    for start in range(min(len(content), 256)):
        if content[start : start + 1] == b"\x78":
            try:
                yield zlib.decompressobj().decompress(content[start:], MOST)
            except zlib.error:
                continue
