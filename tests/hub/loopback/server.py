"""The server itself: two origins, a thread for each connection, and one path for every request through its faults."""

import json
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

# Importing them makes their routes.
from loopback import cards, commits, control, discussions, repositories, resolve, revisions, trees, xet  # noqa: F401
from loopback.access import authenticate
from loopback.faults import Moment
from loopback.hub import Hub
from loopback.messages import HubError, Reply, Request
from loopback.routes import find

PIECE = 1 << 16


class Server(ThreadingHTTPServer):
    """One origin."""

    daemon_threads = True
    request_queue_size = 64


class Handler(BaseHTTPRequestHandler):
    """One connection to one of the origins."""

    protocol_version = "HTTP/1.1"
    server_version = "loopback"
    # Headers and body are two packets: with Nagle's algorithm the second would wait 40 ms for the first one's receipt.
    disable_nagle_algorithm = True
    hub: ClassVar[Hub]
    is_storage: ClassVar[bool]

    def exchange(self) -> None:
        """Answer one request, and log it unless it comes from the test itself."""
        started, outcome = time.time(), "dropped"
        try:
            reply = self.answer()
            outcome = str(reply.status)
            self.send(reply)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            if not self.path.startswith(control.PREFIX):
                self.hub.log.append(self.record(started, outcome))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = exchange

    def record(self, started: float, outcome: str) -> dict[str, Any]:
        sent = {"auth": "Authorization" in self.headers, "storage": self.is_storage}
        status = int(outcome) if outcome.isdigit() else outcome
        return {"time": started, "method": self.command, "path": self.path, "status": status, **sent}

    def answer(self) -> Reply:
        """Return an endpoint's reply or an error; a mistake of this server is a 500 and goes to its output."""
        body = self.body()
        try:
            chunks = self.hub.faults.watch("body", self.line, body)
            self.meet("start")
            reply = self.dispatch(Request(self.hub, (self.command, self.path), self.headers, chunks))
            exhaust(body)
            self.meet("reply")
        except HubError as error:
            exhaust(body)
            return error.reply
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            traceback.print_exc()
            exhaust(body)
            return Reply({"error": f"the loopback Hub has a bug: {error!r}"}, 500)
        return reply

    @property
    def line(self) -> str:
        return f"{self.command} {self.path}"

    def meet(self, moment: Moment) -> None:
        if not self.path.startswith(control.PREFIX):
            self.hub.faults.meet(moment, self.line)

    def dispatch(self, request: Request) -> Reply:
        """Reply for the Hub within one transaction, for storage without, so that uploads run side by side."""
        route, request.words = find(request.method, request.path)
        if self.is_storage and request.token:
            raise HubError(400, "the Authorization header leaked to the storage origin")
        if route.storage:
            return route.endpoint(request)
        authenticate(request)
        _ = request.body
        with self.hub.storage.transaction():
            return route.endpoint(request)

    def body(self) -> Iterator[bytes]:
        """The request's body in pieces, by its length or in HTTP chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            yield from self.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield from self.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def read(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(size, PIECE))
            if not piece:
                raise ConnectionAbortedError("the client went away")
            size -= len(piece)
            yield piece

    def send(self, reply: Reply) -> None:
        is_bytes = isinstance(reply.data, bytes)
        data = reply.data if is_bytes else json.dumps(reply.data).encode()
        headers = {"Content-Length": str(len(data)), "X-Request-Id": f"{time.time_ns():x}", **reply.headers}
        if not is_bytes:
            headers.setdefault("Content-Type", "application/json")
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
            for piece in self.hub.faults.watch("sending", self.line, pieces):
                self.wfile.write(piece)

    def log_message(self, *_: Any) -> None:
        """Nothing: the log is for tests, not for the screen."""


def exhaust(chunks: Iterator[bytes]) -> None:
    """Read what is left: many clients listen only when they have said everything."""
    for _ in chunks:
        pass


def serve(hub: Hub, port: int, storage_port: int) -> None:
    """Listen at both origins in threads, and tell the Hub where that is; port 0 takes a free one."""
    hub.url, hub.storage_url = (listen(hub, *place) for place in ((port, False), (storage_port, True)))


def listen(hub: Hub, port: int, is_storage: bool) -> str:
    handler = type("BoundHandler", (Handler,), {"hub": hub, "is_storage": is_storage})
    server = Server(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
