"""Prefetching: the same items in the same order, some made ahead, errors in their place, and no thread left over."""

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from qkv.scripts.training.prefetch import prefetched


def left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_items_come_in_order_and_end() -> None:
    assert list(prefetched(lambda: iter(range(50)), 3)) == list(range(50))
    assert left() == []


def test_so_many_are_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in count():
            made.append(number)
            yield number

    found = prefetched(items, 3)
    next(found)
    deadline = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    # One is used, three wait, and one is in the hand of the thread.
    assert made == list(range(5))
    found.close()
    assert left() == []


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    found = prefetched(items, 8)
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    assert left() == []


def test_the_thread_ends_with_who_asks() -> None:
    def asks() -> None:
        found = prefetched(count, 2)
        next(found)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        asks()
    assert left() == []


def test_what_makes_items_is_closed() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from count()
        finally:
            closed.set()

    found = prefetched(items, 2)
    next(found)
    found.close()
    assert closed.wait(10)
