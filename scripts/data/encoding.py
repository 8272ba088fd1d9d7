"""Encodings of text files: UTF-8, the one of the byte order mark, or the one of the recipe."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from pathlib import Path

UTF_8 = "utf-8"
# Longer marks first: the mark of UTF-32 begins with the mark of UTF-16.
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
        raise ValueError(f"encoding={name!r} is not known; give utf-8, latin-1, cp1252 or another of Python") from None


def is_wide(encoding: str) -> bool:
    """Tell whether letters take two bytes or more, so that a file cannot be cut at the byte of a line feed."""
    return encoding.lower().replace("-", "").replace("_", "").startswith(("utf16", "utf32"))
