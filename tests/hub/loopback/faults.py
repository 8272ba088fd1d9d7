"""Faults on demand, by request, moment and kind."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

from loopback.messages import HubError

Moment = Literal["start", "body", "reply", "sending"]


@dataclass
class Fault:
    """Something that happens to requests whose `METHOD /path?query` matches, after `skip` of them, `times` times.

    Moments: before anything is done, when `bytes` of the request's body are in, when all is done but nothing answered,
    and when `bytes` of the answer's body are out. Actions: answer with a status (not while sending), wait, hang up, or
    end the server.
    """

    match: str
    action: Literal["status", "delay", "drop", "exit"]
    when: Moment = "start"
    skip: int = 0
    times: int = 1
    bytes: int = 0
    seconds: float = 0
    status: int = 500
    message: str = "injected fault"
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.when, self.action) == ("sending", "status"):
            raise ValueError("a status cannot change while the answer is being sent; use another moment or action")

    def is_due(self, moment: Moment, line: str, passed: range) -> bool:
        """Return whether the fault happens now, counting the requests that it lets pass."""
        met = self.when == moment and self.bytes in passed and re.search(self.match, line)
        if not met or self.times <= 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True

    def happen(self) -> None:
        if self.action == "exit":
            os._exit(137)
        if self.action == "drop":
            raise ConnectionAbortedError
        if self.action == "status":
            raise HubError(self.status, self.message, headers=self.headers)
        time.sleep(self.seconds)


class Faults(list[Fault]):
    """The faults to come, each of which happens to one request however many come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()

    def meet(self, moment: Moment, line: str, passed: range = range(1)) -> None:
        """Let happen what is due; `passed` are the numbers of bytes that have just been reached."""
        with self.lock:
            due = [fault for fault in self if fault.is_due(moment, line, passed)]
        for fault in due:
            fault.happen()

    def watch(self, moment: Moment, line: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same chunks, with the faults that are due between them."""
        reached = 0
        for chunk in chunks:
            self.meet(moment, line, range(reached, reached + len(chunk)))
            reached += len(chunk)
            yield chunk
