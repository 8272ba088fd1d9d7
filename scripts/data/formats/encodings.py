"""Open text files in the encoding that they are in."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from pathlib import Path
from typing import Any, TextIO

from qkv.scripts.data.examples import InvalidRecord

UTF_8 = "utf-8"
# Longer marks first: the mark of UTF-32 begins with the mark of UTF-16.
MARKS = {BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16",
         BOM_UTF8: "utf-8-sig"}  # fmt: skip


def open_text(path: Path, encoding: str, newline: str = "\n") -> TextIO:
    """Open a text in the encoding of its byte order mark, else in `encoding`; wrong bytes become surrogates.

    A carriage return ends a line where a file, as of an old Mac, has no other line ends.
    """
    with path.open("rb") as file:
        first = file.read(4)
    known = next((name for mark, name in MARKS.items() if first.startswith(mark)), encoding)
    if known == UTF_8 and b"\0" in first:
        raise UnicodeError("it has zero bytes, as UTF-16 without its mark, utf-16-le or utf-16-be, has")
    how: dict[str, Any] = {"encoding": known, "errors": "surrogateescape"}
    with path.open(newline="\n", **how) as file:
        first_line = file.readline()
    is_old_mac = "\r" in first_line and not first_line.endswith("\n")  # then the file has no other line end
    return path.open(newline=None if is_old_mac else newline, **how)


def whole(text: str) -> str:
    """Return a text; InvalidRecord where bytes of another encoding, or half of a pair, became a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mend = "save the file as UTF-8, or give its encoding, such as encoding=cp1252"
        raise InvalidRecord(f"not of its encoding from letter {error.start + 1} on; {mend}") from None
    return text
