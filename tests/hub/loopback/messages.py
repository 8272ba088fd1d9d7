"""Requests as the endpoints see them, replies and errors as they give them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from loopback.hub import Hub, User

BINARY = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}


@dataclass
class Reply:
    """Bytes, or anything else as JSON, with a status and headers."""

    data: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class HubError(Exception):
    """A refusal; its `code` is how the clients tell a missing repository from a missing file."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> None:
        super().__init__(message)
        codes = {"X-Error-Code": code} if code else {}
        data = {"error": message} if body is None else body
        self.reply = Reply(data, status, {"X-Error-Message": message, **codes, **(headers or {})})


class Request:
    """One request: the words its route found in the path, the query, the headers, and the body, which is read once."""

    def __init__(self, hub: "Hub", line: tuple[str, str], headers: Message, chunks: Iterator[bytes]) -> None:
        self.hub, self.headers, self.chunks = hub, headers, chunks
        self.method, self.target = line
        parts = urlsplit(self.target)
        self.path = parts.path
        self.query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.words: dict[str, str] = {}
        self.user: User | None = None

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ").strip()

    @cached_property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    def flag(self, name: str) -> bool:
        """Return whether a flag of the query is set."""
        return self.query.get(name, "").lower() in ("1", "true")


def requested(request: Request, size: int) -> tuple[int, int] | None:
    """First byte and end of the part that is asked for; 416 beyond the end, None for the whole."""
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if found is None:
        return None
    start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    if start >= size:
        raise HubError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return start, end


def ranged(request: Request, data: bytes, headers: dict[str, str]) -> Reply:
    """The data, or the part of it that is asked for."""
    part = None if request.method == "HEAD" else requested(request, len(data))
    if part is None:
        return Reply(data, headers={**BINARY, **headers})
    start, end = part
    span = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
    return Reply(data[start:end], 206, {**BINARY, **headers, **span})
