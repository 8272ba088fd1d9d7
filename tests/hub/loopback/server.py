"""The server: a thread for each connection, and routes from paths to functions."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback.hub import Hub, HubError, User

USERS = {"hf_alice": User("alice"), "hf_bob": User("bob"), "hf_ro": User("alice", may_write=False)}
CLIENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_XET": "1",
    "NO_PROXY": "127.0.0.1,localhost",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Variables that would lead a client elsewhere.
OTHERS = ("HF_", "TRANSFORMERS_", "HUGGINGFACE", "PYTHONPATH")
# The expression for a name in braces; anything else is one segment, as a quoted revision is.
PARTS = {"kinds": "models|datasets|spaces", "repo": "[^/]+/[^/]+", "path": ".+"}


@dataclass
class Request:
    """A request: the words of its path, the query, the headers and the body."""

    hub: Hub
    method: str
    path: str
    query: dict[str, str]
    headers: Any
    body: bytes
    words: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ").strip()


@dataclass
class Reply:
    """Bytes, or anything else as JSON."""

    data: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Endpoint = Callable[[Request], Reply]
ROUTES: list[tuple[str, re.Pattern[str], Endpoint]] = []


def route(method: str, *paths: str) -> Callable[[Endpoint], Endpoint]:
    """Serve these paths, such as `/api/{kinds}/{repo}/refs`, by the function below."""

    def register(endpoint: Endpoint) -> Endpoint:
        for path in paths:
            pieces = enumerate(re.split(r"\{(\w+)\}", path))
            text = "".join(f"(?P<{x}>{PARTS.get(x, '[^/]+')})" if index % 2 else re.escape(x) for index, x in pieces)
            ROUTES.append((method, re.compile(text), endpoint))
        return endpoint

    return register


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two packets: with Nagle's algorithm the second would wait for the first one's receipt.
    disable_nagle_algorithm = True
    hub: Hub

    def exchange(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        request = Request(self.hub, self.command, parts.path, query, self.headers, self.content())
        try:
            reply = self.dispatch(request)
        except HubError as error:
            reply = Reply(error.body, error.status, error.headers)
        self.hub.log.append(f"{self.command} {self.path}")
        self.send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = exchange

    def dispatch(self, request: Request) -> Reply:
        self.hub.before(f"{request.method} {request.path}")
        method = "GET" if request.method == "HEAD" else request.method
        for known, pattern, endpoint in ROUTES:
            if known == method and (found := pattern.fullmatch(request.path)):
                request.words = {name: unquote(word) for name, word in found.groupdict().items()}
                return endpoint(request)
        raise HubError(404, "Not found")

    def content(self) -> bytes:
        """The request's body, by its length or in HTTP chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def send(self, reply: Reply) -> None:
        is_bytes = isinstance(reply.data, bytes)
        data = reply.data if is_bytes else json.dumps(reply.data).encode()
        kind = "application/octet-stream" if is_bytes else "application/json"
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(data)), "Content-Type": kind, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Hub]:
    """A Hub whose users are alice (token hf_alice; hf_ro, which may only read) and bob (hf_bob)."""
    from loopback import routes  # noqa: F401

    hub = Hub(USERS)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def environment(url: str, home: Path, token: str | None, **extra: Any) -> dict[str, str]:
    """The environment of a client subprocess with this Hub, the cache folder `home` and, with a token, a user."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    found |= CLIENT | {"HF_ENDPOINT": url, "HF_HOME": str(home)}
    found |= {"HF_TOKEN": token} if token is not None else {}
    return found | {name: str(value) for name, value in extra.items()}
