"""How does a training end when it is told to? After the step it is in, with everything saved."""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """A training that a signal ended, after it saved its state; `status` is what shells expect a program to return."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number


class Interrupt:
    """Takes note of SIGTERM and SIGINT while it is entered, so that a step ends and is saved.

    The second signal does what it would have done without.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        # Python gives signals to the main thread only, and only that may ask for them.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self.before[number] = signal.signal(number, self.note)
        return self

    def __exit__(self, *error: object) -> None:
        while self.before:
            number, handler = self.before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal, and leave the next one to whoever had them before."""
        self.number = number
        self.__exit__()
