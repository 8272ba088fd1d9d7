"""How are batches made while the model computes? By a thread that is some of them ahead."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Any

# Seconds after which a thread that waits looks whether it is still wanted.
PATIENCE = 0.1


class End:
    """What comes last: nothing more, or the error that ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetched(make: Callable[[], Iterator[Any]], ahead: int) -> Iterator[Any]:
    """What the iterator gives, made by a thread up to `ahead` items before it is asked for.

    An error there is raised here, in its place in the order. The thread ends with this generator.
    """
    queue: Queue[Any] = Queue(ahead)
    stop = Event()
    thread = Thread(target=fill, args=(make, queue, stop), name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := queue.get(), End):
            yield item
        if item.error:
            raise item.error
    finally:
        stop.set()
        # One that waits for room must see that nothing more is wanted.
        while not queue.empty():
            queue.get()
        thread.join()


def fill(make: Callable[[], Iterator[Any]], queue: "Queue[Any]", stop: Event) -> None:
    """Put what the iterator gives into the queue until it ends, fails or is not wanted any more."""
    end = End()
    try:
        for item in make():
            if not put(queue, item, stop):
                return
    except BaseException as error:  # whatever it is, it belongs to the one who asks for the next item
        end = End(error)
    put(queue, end, stop)


def put(queue: "Queue[Any]", item: Any, stop: Event) -> bool:
    """Put an item into the queue when there is room; False where it is not wanted any more."""
    while not stop.is_set():
        with suppress(Full):
            queue.put(item, timeout=PATIENCE)
            return not stop.is_set()
    return False
