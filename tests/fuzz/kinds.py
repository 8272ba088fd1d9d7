"""Kinds of files, what reading them may do, and how much of the machine it may take."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What runs code of others, starts a program or asks the network.
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")
SECONDS = 2.0
# Beside twice the memory of the file: what interpreter and libraries take for files of any size.
BASE = 32 * 2**20
MOST = re.compile(rb"VmHWM:\s+(\d+) kB")
watched: list[str] | None = None


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what is forbidden, while something is read."""
    if watched is not None and event in FORBIDDEN:
        watched.append(event)


sys.addaudithook(watch)


def unchanged(path: Path, whole: bytes, read: object) -> None:
    """Any change of such a file has to be refused."""
    assert path.read_bytes() == whole, "was changed, and passed as whole"


@dataclass(frozen=True)
class Kind:
    """How a file is made whole and read.

    `check` compares the content of a changed file with a second reading of it, given its path and the whole one's bytes.
    `refuses` tells whether a part of it was refused. `memory` is what a file takes: its bytes, and what it says it holds.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    check: Callable[[Path, bytes, Any], None] = unchanged
    refuses: Callable[[Any], bool] = lambda read: False
    as_json: bool = False
    memory: Callable[[Path], int] = lambda path: path.stat().st_size


@contextmanager
def nothing_forbidden() -> Iterator[None]:
    global watched
    watched = []
    try:
        yield
    finally:
        seen, watched = watched, None
    assert not seen, seen


def most_resident() -> int:
    """The most bytes of this process in memory since they were counted afresh."""
    return 1024 * int(MOST.search(Path("/proc/self/status").read_bytes())[1])


@dataclass
class Meter:
    """The most seconds of the processor that an input took, and the most memory (VmHWM of proc_pid_status(5))."""

    # Each with the number of its input.
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)

    @contextmanager
    def within_limits(self, number: int, memory_of_file: Callable[[], int]) -> Iterator[None]:
        """Measure what the block takes for an input of this number; AssertionError where it is too much."""
        Path("/proc/self/clear_refs").write_bytes(b"5")
        before, began = most_resident(), time.process_time()
        try:
            yield
        finally:
            seconds, memory = time.process_time() - began, most_resident() - before
            self.slowest, self.largest = max(self.slowest, (seconds, number)), max(self.largest, (memory, number))
            assert seconds <= SECONDS, f"takes {seconds:.1f} s"
            assert memory <= BASE or memory <= BASE + 2 * memory_of_file(), f"takes {memory / 2**20:.0f} MiB"
