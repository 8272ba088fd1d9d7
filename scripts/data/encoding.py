"""Encodings of files of text: UTF-8, what a byte order mark says, or what the recipe says."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

UTF_8 = "utf-8"
# Longer marks first: that of UTF-32 begins as that of UTF-16 does.
MARKS = {
    BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16", BOM_UTF8: UTF_8,
}  # fmt: skip


def encoding_of(path: Path, asked: str = UTF_8) -> str:
    """Return the encoding of a file: that of its byte order mark, else the one asked for."""
    with path.open("rb") as file:
        first = file.read(4)
    return next((name for mark, name in MARKS.items() if first.startswith(mark)), asked)


def check_encoding(name: str) -> None:
    """Raise ValueError for an encoding that Python does not know."""
    try:
        "a".encode(name)
    except LookupError:
        raise ValueError(
            f"encoding={name!r} is not known; give utf-8, latin-1, cp1252, or another of Python's"
        ) from None


def is_wide(encoding: str) -> bool:
    """Tell whether letters take two bytes or more, so that a file cannot be cut at the byte of a line feed."""
    return re.match(r"utf[-_]?(16|32)", encoding.lower()) is not None


def open_bytes(path: str, encoding: str) -> BinaryIO:
    """Open a file as bytes whose lines end with one byte: one of a wide encoding is read whole, as UTF-8."""
    if not is_wide(encoding):
        return open(path, "rb")
    try:
        return BytesIO(Path(path).read_bytes().decode(encoding).encode())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not {encoding.upper()} from its byte {error.start} on; save it as UTF-8, or give its encoding="
        ) from None


def bytes_encoding(encoding: str) -> str:
    """Return the encoding of what `open_bytes` gives."""
    return UTF_8 if is_wide(encoding) else encoding
