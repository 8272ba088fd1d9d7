"""Print the work that takes longer than a moment, and sentences, in the first of several processes."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Seconds before a phase is printed.
MOMENT = 1.0
PREFIX = "qkv: "


@contextmanager
def phase(what: str) -> Iterator[None]:
    """Print the work of a block if it takes longer than a moment; of several processes only the first prints."""
    timer = threading.Timer(MOMENT, say, (f"{what} …",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_first_process() -> bool:
    """Tell whether this is the only process of a command, or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def say(sentence: str) -> None:
    """Print a sentence on standard error, in the first of several processes."""
    if is_first_process():
        print(f"{PREFIX}{sentence}", file=sys.stderr, flush=True)


say_once = cache(say)
