"""Disturbances of a program: a kill at a write or at a time, a disk that is full from a write on.

A write is what an audit hook of Python sees before it happens (a file opened for writing, a folder made, something
renamed or removed), or the weights that safetensors writes, below a folder.
"""

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors

CHANGES = ("os.rename", "os.remove", "os.rmdir")
GROWS = ("open", "os.mkdir", "serialize_file")


class Writes:
    """Count the writes below a folder from now on, and call `before` with each: its number, kind and path."""

    def __init__(self, folder: Path, before: Callable[[int, str, str], None], kinds: tuple[str, ...]) -> None:
        self.folder, self.before, self.kinds = f"{folder}{os.sep}", before, kinds
        self.count = 0
        sys.addaudithook(self.hear)
        serialize = safetensors.serialize_file

        def serialized(tensors: Any, filename: Any, *arguments: Any, **options: Any) -> Any:
            self.note("serialize_file", os.fspath(filename))
            return serialize(tensors, filename, *arguments, **options)

        safetensors.serialize_file = serialized

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an event that is a write."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.note(event, os.fspath(path))
        elif event in ("os.mkdir", *CHANGES):
            self.note(event, arguments[0])

    def note(self, kind: str, path: Any) -> None:
        """Count a write that is below the folder."""
        path = os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
        if kind in self.kinds and path.startswith(self.folder):
            self.count += 1
            self.before(self.count, kind, path)


def die_after(seconds: float) -> None:
    """Have the kernel send SIGKILL to this process when so much time has passed, whatever it does then."""
    libc = ctypes.CDLL(None, use_errno=True)
    event = (ctypes.c_byte * 64)()  # struct sigevent: value, number of the signal, how it is sent
    ctypes.c_int.from_buffer(event, 8).value = int(signal.SIGKILL)
    timer = ctypes.c_void_p()
    nanoseconds = max(int(seconds * 1e9), 1)
    span = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 10**9))
    if libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer)) or libc.timer_settime(timer, 0, span, None):
        raise OSError(ctypes.get_errno(), "no timer")


def die_at_write(folder: Path, number: int, seconds: float) -> Writes:
    """Die in a write, so many seconds after it began."""

    def before(count: int, kind: str, path: str) -> None:
        if count == number:
            die_after(seconds) if seconds else os.kill(os.getpid(), signal.SIGKILL)

    return Writes(folder, before, (*GROWS, *CHANGES))


def fill_disk(folder: Path, number: int) -> Writes:
    """Let nothing be written any more below a folder, from a write on."""

    parts: list[str] = []

    def before(count: int, kind: str, path: str) -> None:
        if count < number or path in parts:
            return
        if kind == "serialize_file":
            parts.append(path)
            Path(path).write_bytes(b"\x08\0\0\0")
            parts.remove(path)
            raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)} (os error 28)")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    return Writes(folder, before, GROWS)
