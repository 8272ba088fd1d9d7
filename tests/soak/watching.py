"""What a long-running process holds, and a limit to how long it may stand still."""

import ctypes
import faulthandler
import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

# From which all that is random follows.
SEED = int(os.environ.get("QKV_SOAK_SEED", "0"))


def number(name: str, default: int) -> int:
    """How many times something is done: what QKV_SOAK_NAME in the environment says, or the default."""
    return int(os.environ.get(f"QKV_SOAK_{name}", default))


def anonymous_memory() -> int:
    """Kilobytes that are this process's own: without files that are mapped, after all that is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def held() -> dict[str, int]:
    """Modules, open files and entries of the temporary folder."""
    return {
        "modules": len(sys.modules),
        "open files": len(os.listdir("/proc/self/fd")),
        "temporary files": len(os.listdir(tempfile.gettempdir())),
    }


def growth(kilobytes: Sequence[int]) -> float:
    """The growth from the first to the last measurement on the line that fits all best, as a part of the mean."""
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
