"""End a training on SIGTERM or SIGINT after its current step, with the state saved."""

import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Messages of the first signal, of the second, which launchers send too, and of the third, which ends the process.
SAID = (
    "stopping after this step, with the state saved",
    "the state is being saved; once more ends at once, without it",
    "ended at once; the same command resumes from the checkpoint before",
)


class Interrupted(Exception):
    """Raised when a signal ended a training whose state is saved; `status` is the exit status that shells expect."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number


class SignalHandler:
    """Record SIGTERM and SIGINT while it is entered; the third gets the handler from before."""

    def __init__(self, *, speaks: bool = False) -> None:
        self.number: int | None = None
        self.count, self.speaks = 0, speaks
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
        """Record a signal; the third restores the earlier handlers, and is raised again."""
        if self.speaks:
            # Not by print, which the signal may have interrupted.
            os.write(2, f"\nqkv: {SAID[self.count]}\n".encode())
        self.count += 1
        self.number = number
        if self.count == len(SAID):
            self.__exit__()
            signal.raise_signal(number)
