"""Serve the page of a model: `qkv.demo`."""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from types import TracebackType
from typing import Any, NamedTuple

from qkv.scripts.attention_view.page import content_policy
from qkv.scripts.common.phases import phase
from qkv.scripts.prediction.source import Source, open_source
from qkv.scripts.web_demo.answers import answer
from qkv.scripts.web_demo.arguments import HOST, PORT
from qkv.scripts.web_demo.attention_pages import AttentionPages
from qkv.scripts.web_demo.page_facts import facts, static_files
from qkv.scripts.web_demo.requests import (
    MOST_BYTES,
    RefusedError,
    body_length,
    check_sender,
    is_loopback,
    parse_request,
)

PATIENCE = 30  # seconds that a connection may be silent
QUEUE = 60  # seconds that a request waits for those before it
POLL = 0.05  # seconds until it is seen that the page is closed
CHUNK = 2**16  # bytes of a refused request that are read at a time
# Nothing is loaded from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; frame-src 'self'; base-uri 'none'; form-action 'none'"
)
# A page of attention reaches nothing of the page that it is shown on.
ATTENTION_POLICY = f"{content_policy()}; sandbox allow-scripts"


class Sent(NamedTuple):
    """A response: its type, its bytes, and its content security policy."""

    kind: str
    content: bytes
    policy: str = POLICY


class Demo(ThreadingHTTPServer):
    """A page of a model, which is served from a thread of its own until it is closed."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, source: Source, host: str, port: int) -> None:
        self.address_family = AF_INET6 if ":" in host else self.address_family
        self.source, self.host = source, host
        self.space = os.environ.get("SPACE_HOST")
        self.files = static_files()
        self.facts = facts(source)
        self.attention = AttentionPages(source)
        self.actions = {"/predict": self.predict, "/attention": self.attention.make}
        # A model answers one request after the other: `generate` and the choice of a backend change it meanwhile.
        self.turn = threading.Lock()
        super().__init__((host, port), Handler)
        self.thread = threading.Thread(target=self.serve_forever, args=(POLL,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.server_address[1]}"

    def predict(self, request: dict[str, Any]) -> dict[str, Any]:
        """Predict for a request, and say where the attention for it will be."""
        made, reading = answer(self.source, request)
        return made | {"attention": self.attention.keep(reading)}

    def wait(self) -> None:
        """Serve until the page is closed, or the program interrupted."""
        self.thread.join()

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self.server_close()
        self.thread.join()

    def __enter__(self) -> "Demo":
        """Return the page, which is served within the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the page."""
        self.close()

    def __repr__(self) -> str:
        """Return the address, as a notebook shows it."""
        return f"<page of {self.source.name} at {self.url}>"


class Handler(BaseHTTPRequestHandler):
    """A connection to the page."""

    server: Demo
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "qkv", ""

    def do_GET(self) -> None:
        """Send a file of the page, or the facts about the model."""
        self.respond(self.page)

    def do_HEAD(self) -> None:
        """Send the headers of the same."""
        self.respond(self.page)

    def do_POST(self) -> None:
        """Predict for what a person tries, or make the page of the attention for it."""
        self.respond(self.action)

    def respond(self, make: Callable[[], Sent]) -> None:
        """Send what is made for a request, or in a sentence why nothing is; who has left gets nothing."""
        try:
            check_sender(self.headers, self.server.host, self.server.space)
            status, sent = 200, make()
        except RefusedError as refused:
            # Of a refused request a part may be unread, which is no request of its own.
            self.close_connection = self.close_connection or self.command == "POST"
            status, sent = refused.status, as_json({"error": str(refused)})
        except ValueError as error:
            status, sent = 400, as_json({"error": " ".join(str(error).split())})
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = f"the model failed at this input ({type(error).__name__}); its server prints why"
            status, sent = 500, as_json({"error": said})
        with suppress(ConnectionError):
            self.send(status, sent)

    def page(self) -> Sent:
        """Return a file of the page, or a page of attention, by its exact address."""
        path = self.path.partition("?")[0]
        if path == "/facts":
            return as_json(self.server.facts)
        if path in self.server.files:
            return Sent(*self.server.files[path])
        content = self.server.attention.page(path.removeprefix("/"))
        if content is None:
            raise RefusedError(404, "there is no such page; the page is /")
        return Sent("text/html", content, ATTENTION_POLICY)

    def action(self) -> Sent:
        """Return what an action gives for the request."""
        if self.path not in self.server.actions:
            raise RefusedError(404, "there is no such action; the page is /")
        try:
            body = self.rfile.read(body_length(self.headers))
        except RefusedError:
            self.discard()
            raise
        request = parse_request(body)
        if not self.server.turn.acquire(timeout=QUEUE):
            raise RefusedError(503, "the model is busy with other requests; try again in a minute")
        try:
            return as_json(self.server.actions[self.path](request))
        finally:
            self.server.turn.release()

    def discard(self) -> None:
        """Read a refused request to its end, within bounds: who still sends does not read the answer."""
        length = self.headers.get("Content-Length") or ""
        left = min(int(length), 8 * MOST_BYTES) if length.isdigit() and len(length) < 15 else 0
        while left > 0 and (data := self.rfile.read(min(CHUNK, left))):
            left -= len(data)

    def send(self, status: int, sent: Sent) -> None:
        """Send a response with headers that keep it from being read as anything else, or by another site."""
        self.send_response(status)
        self.send_header("Content-Type", f"{sent.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(sent.content)))
        for name, value in headers(self.server.host, sent.policy).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a sentence for what is no request of HTTP, or of another method."""
        self.close_connection = True
        self.send(code, as_json({"error": message or "the request cannot be read; open the page itself"}))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing for a request: what a person tries is theirs."""


def headers(host: str, policy: str) -> dict[str, str]:
    """Return the headers of a response: no other site shows it in a frame, but the Hub a Space."""
    frames = "'self'" if is_loopback(host) else "'self' https://huggingface.co https://*.hf.space"
    return {
        "Content-Security-Policy": f"{policy}; frame-ancestors {frames}",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def as_json(content: dict[str, Any]) -> Sent:
    """Return an object as JSON."""
    return Sent("application/json", json.dumps(content).encode())


def demo(
    source: str, *, port: int = PORT, host: str = HOST, revision: str | None = None, trust_remote_code: bool = False
) -> Demo:
    """Serve a web page on which a person tries a model, and sees its attention.

    `source` is a run, a model folder or a Hub id. The page is served from a thread until `close()`, or as long as a
    `with` block; `url` is its address. Only this machine reaches it unless `host` says otherwise.

        with qkv.demo("runs/first", port=0) as page:
            print(page.url)
            page.wait()

    ValueError where there is no model, or no task that has a page; OSError for a port that is taken.
    """
    opened = open_source(str(source), revision, trust_remote_code=trust_remote_code)
    if not 0 <= port < 2**16:
        raise ValueError(f"port={port} is not one of 0 to 65535; give another, or 0 for any that is free")
    with phase(f"loading {opened.name}"):
        _ = opened.model
    try:
        return Demo(opened, host, port)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be served ({error.strerror}); give another --port or --host") from None
