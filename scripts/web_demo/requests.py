"""Check what a browser sends before anything is made of it: who asks, how much, and of which types."""

import base64
import binascii
import io
import json
import math
import wave
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from qkv.scripts.data.image import opened_image
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.prediction.options import OPTIONS, Options, value_of

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_BYTES = 16 * 2**20  # of a request, whose files are a third longer than they are
MOST_CHARACTERS = 10_000  # of a text
MOST_PIXELS = 50_000_000  # of an image
MOST_SECONDS = 60  # of a recording
MOST_LABELS, MOST_TOKENS = 64, 256  # texts to choose from, tokens that are written
# Options of `qkv generate` and `qkv predict` that the page may set; others name files.
ALLOWED = OPTIONS["generate"] | {"threshold": OPTIONS["predict"]["threshold"]}
SETTABLE = ("temperature", "top_k", "top_p", "repetition_penalty", "threshold", "max_new_tokens")


class RefusedError(Exception):
    """A request is refused: the status of HTTP, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Headers(Protocol):
    """The headers of a request."""

    def get(self, name: str, /) -> str | None:
        """Return a header by its name, None where there is none."""


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine alone."""
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")


def check_sender(headers: Headers, listening: str, space: str | None = None) -> None:
    """Refuse requests that another page makes.

    A page of another site can give its own name the address 127.0.0.1 (DNS rebinding): the `Host` of its requests is
    that name. Other requests of it have it as their `Origin`. `space` is the public name of a Space, whose proxy may
    change `Host`.
    """
    host = headers.get("Host") or ""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if is_loopback(listening) and name.lower() not in (*LOOPBACK, listening.lower()):
        raise RefusedError(403, f"host {shortened(name)!r} is not {listening}; open the address that qkv demo printed")
    origin = headers.get("Origin")
    own = (f"http://{host}", f"https://{host}", f"https://{space}" if space else None)
    if origin is not None and origin not in own:
        raise RefusedError(403, f"origin {shortened(origin)!r} is not this page; open the page itself")


def shortened(text: str, most: int = 60) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= most else f"{text[:most]}…"


def body_length(headers: Headers) -> int:
    """Return the number of bytes of a request; refuse another type than JSON, and what is too long."""
    if (headers.get("Content-Type") or "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the request is no JSON; send it as application/json")
    length = headers.get("Content-Length") or ""
    if not (length.isascii() and length.isdigit()) or len(length) > 15 or headers.get("Transfer-Encoding"):
        raise RefusedError(411, "the request does not say its length; send Content-Length")
    if int(length) > MOST_BYTES:
        raise RefusedError(413, f"{int(length):,} bytes are more than {MOST_BYTES:,}; send a smaller file")
    return int(length)


def parse_request(body: bytes) -> dict[str, Any]:
    """Return the object of JSON in a request."""
    try:
        content = json.loads(body, parse_constant=raise_for_constant)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the request cannot be read as JSON; reload the page") from None
    if not isinstance(content, dict):
        raise RefusedError(400, f"the request is {type(content).__name__}, expected an object; reload the page")
    return content


def raise_for_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(name)


def text_of(request: Mapping[str, Any], name: str) -> str:
    """Return a text of a request."""
    text = request.get(name, "")
    if not isinstance(text, str):
        raise RefusedError(400, f"{name} is {type(text).__name__}, expected a text; write one")
    if len(text) > MOST_CHARACTERS:
        raise RefusedError(413, f"{name} has {len(text):,} characters, at most {MOST_CHARACTERS:,}; shorten it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(400, f"{name} holds half a character; write it again") from None
    return text


def file_of(request: Mapping[str, Any]) -> bytes:
    """Return the bytes of the file in a request; a name of a file is nothing that is read."""
    data = request.get("file")
    if not isinstance(data, str) or not data:
        raise RefusedError(400, "there is no file; choose, draw or record one")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(400, "file is not in base64; choose it again") from None


def check_size(data: bytes) -> None:
    """Refuse an image of more pixels than memory is taken for."""
    try:
        with opened_image(data) as image:
            width, height = image.size
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    if width * height > MOST_PIXELS:
        raise RefusedError(413, f"the image has {width} x {height} pixels, at most {MOST_PIXELS:,}; make it smaller")


def check_duration(data: bytes) -> None:
    """Refuse a recording that is too long; one that is damaged is told of by what reads it."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            header = file.getparams()
    except (wave.Error, EOFError, RuntimeError):
        return
    # The header of a stream does not know its length: the bytes do.
    frames = min(header.nframes, len(data) // max(header.nchannels * header.sampwidth, 1))
    if frames > MOST_SECONDS * header.framerate:
        raise RefusedError(413, f"the recording takes more than {MOST_SECONDS} s; send a shorter one")


def labels_of(request: Mapping[str, Any]) -> list[str]:
    """Return the texts to choose from, one in each line."""
    labels = list(dict.fromkeys(line.strip() for line in text_of(request, "labels").splitlines() if line.strip()))
    if not 2 <= len(labels) <= MOST_LABELS:
        raise RefusedError(400, f"there are {len(labels)} texts to choose from; give 2 to {MOST_LABELS}, one a line")
    return labels


def options_of(request: Mapping[str, Any]) -> Options:
    """Return the options of a request, which the page leaves out where they are empty."""
    given = request.get("options", {})
    if not isinstance(given, dict):
        raise RefusedError(400, f"options is {type(given).__name__}, expected an object; reload the page")
    options: Options = {}
    for name, value in given.items():
        if name not in SETTABLE:
            raise RefusedError(400, f"there is no option {shortened(name)!r}; the options are {', '.join(SETTABLE)}")
        options[name] = value_of(name, shortened(str(value)), ALLOWED[name])
        if not math.isfinite(options[name]):
            raise RefusedError(400, f"{name}={options[name]} is no finite number; give one")
    if options.get("max_new_tokens", 0) > MOST_TOKENS:
        raise RefusedError(400, f"max_new_tokens={options['max_new_tokens']} must be at most {MOST_TOKENS}")
    return options
