"""Read a text in the forms that a secret hides in: escaped, put together from parts, encoded, backwards."""

import base64
import binascii
import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Escapes of JSON, Python, HTML and URLs; spaces and line ends of byte-level vocabularies; characters without width.
ESCAPES = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})|(&#?\w{1,8};)|\\([\"'\\/])|\\[nrt]|[ĠĊĉ▁]"
    "|[\u00ad\u200b-\u200f\u2060\ufeff]"
)
# Between two parts of a string: quotes with or without a plus, as Python and JavaScript join them, and broken lines.
SEAMS = re.compile(r"[\"'`]\s*[+.]?\s*[\"'`]|\\\r?\n\s*")
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
HEXADECIMAL = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
PRINTABLE = re.compile(r"[\t\n\r\x20-\x7e]{12,}")


@dataclass(frozen=True)
class Form:
    """A text in another form, and the offset in the first of any offset in it."""

    text: str
    origin: Callable[[int], int]


def forms(text: str) -> Iterator[Form]:
    """Yield a text as it is and in every form that differs from it."""
    yield Form(text, lambda at: at)
    plain = replaced(text, ESCAPES, unescaped)
    if plain.text != text:
        yield plain
    joined = replaced(plain.text, SEAMS, lambda match: "")
    if joined.text != plain.text:
        yield Form(joined.text, lambda at: plain.origin(joined.origin(at)))
    yield Form(text[::-1], lambda at: len(text) - at)
    for pattern, decode in ((ENCODED, decoded), (HEXADECIMAL, decoded_hexadecimal)):
        for match in pattern.finditer(text):
            if readable := decode(match[0]):
                yield Form(readable, beginning(match.start()))


def beginning(start: int) -> Callable[[int], int]:
    """Return the origin of all that was read from one place."""
    return lambda _: start


def unescaped(match: re.Match[str]) -> str:
    """Return the character that an escape stands for; a space where it is a boundary."""
    number = match[1] or match[2] or match[3]
    if number:
        return chr(int(number, 16))
    if match[4]:
        return html.unescape(match[4])
    if match[5]:
        return match[5]
    return " " if match[0][0] in "\\ĠĊĉ▁" else ""


def replaced(text: str, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> Form:
    """Replace matches, and remember where what follows each of them was."""
    parts: list[str] = []
    starts, origins, end, length = [0], [0], 0, 0
    for match in pattern.finditer(text):
        new = replacement(match)
        parts += text[end : match.start()], new
        length += match.start() - end + len(new)
        end = match.end()
        starts.append(length)
        origins.append(end)

    def origin(at: int) -> int:
        place = bisect_right(starts, at) - 1
        return min(origins[place] + at - starts[place], len(text))

    return Form("".join([*parts, text[end:]]), origin)


def decoded(run: str) -> str:
    """Decode base64 of a text; empty for what is none."""
    try:
        bare = run.rstrip("=").replace("-", "+").replace("_", "/")
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return ""
    return as_text(data)


def decoded_hexadecimal(run: str) -> str:
    """Decode hexadecimal bytes of a text; empty for what is none."""
    return as_text(bytes.fromhex(run))


def as_text(data: bytes) -> str:
    """Return bytes as text if all of them are printable, else nothing."""
    text = data.decode("latin-1")
    return text if PRINTABLE.fullmatch(text) else ""
