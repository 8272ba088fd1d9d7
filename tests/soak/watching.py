"""Seed, counts and memory of long runs, and a limit to how long they may stand still."""

import ctypes
import faulthandler
import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

# Of all random numbers.
SEED = int(os.environ.get("QKV_SOAK_SEED", "0"))


def number(name: str, default: int) -> int:
    """The value of QKV_SOAK_NAME in the environment, or the default."""
    return int(os.environ.get(f"QKV_SOAK_{name}", default))


def anonymous_memory() -> int:
    """Kilobytes of this process alone: without mapped files, after free memory was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def growth(kilobytes: Sequence[int]) -> float:
    """The growth over all measurements on their regression line, as a part of the mean."""
    slope = np.polyfit(range(len(kilobytes)), kilobytes, 1)[0]
    return float(slope * (len(kilobytes) - 1) / np.mean(kilobytes))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the process, with the stack of every thread, where the block takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
