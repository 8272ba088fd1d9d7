"""End a training on SIGTERM or SIGINT after its current step, with the state saved."""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """Raised when a signal ended a training whose state is saved; `status` is the exit status that shells expect."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number


class SignalHandler:
    """Record SIGTERM and SIGINT while it is entered; a second signal does what it did before."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "SignalHandler":
        # Python delivers signals to the main thread only, and only that may set handlers.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self.before[number] = signal.signal(number, self.handle)
        return self

    def __exit__(self, *error: object) -> None:
        while self.before:
            number, handler = self.before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the signal, and restore the earlier handlers."""
        self.number = number
        self.__exit__()
