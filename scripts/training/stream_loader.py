"""Load a stream: each process reads some of its shards, and every shard gives as many examples to each step.

So a step holds the same examples, in the same order, on any number of processes.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import count, islice
from typing import Any, TypeVar

from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.stream import Position, Shard, Stream
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.sampler import Loader, MapLoader, Share

# Steps that are prepared in advance.
AHEAD = 4
Item = TypeVar("Item")


class StreamLoader:
    """Load one process's shards of a stream."""

    def __init__(self, task: Task, recipe: Recipe, share: Share) -> None:
        if not isinstance(task.train, Stream):
            raise TypeError(f"{type(task.train).__name__} is no Stream")
        check_shards(recipe, share)
        self.task, self.stream, self.recipe, self.share = task, task.train, recipe, share
        size = recipe.data.shards // share.count
        self.own = range(share.rank * size, (share.rank + 1) * size)
        self.states: dict[str, dict[str, Any]] = {str(number): vars(Position()) for number in self.own}

    def micro_batches(self, done: int) -> Iterator[Batch]:
        """Yield this process's batches, made ahead by a thread, with `workers` more to help it."""
        for batches, states in prefetch(partial(self.steps, done), AHEAD):
            yield from batches[:-1]
            self.states = states
            yield batches[-1]

    def steps(self, done: int) -> Generator[tuple[list[Batch], dict[str, dict[str, Any]]]]:
        """Yield the batches of each step, and the positions of the shards after it."""
        with ThreadPoolExecutor(self.recipe.data.workers) if self.recipe.data.workers else nullcontext() as pool:
            shards = [self.shard(number, pool) for number in self.own]
            streams = [shard.examples() for shard in shards]
            size = self.recipe.optimization.batch_size // self.recipe.data.shards
            for step in count(done):
                records = [record for stream in streams for record in islice(stream, size)]
                first = step * self.recipe.optimization.batch_size + self.own.start * size
                batches = [self.batch(records, first, index) for index in range(self.share.accumulate)]
                yield batches, {str(shard.number): shard.state() for shard in shards}

    def shard(self, number: int, pool: Executor | None) -> Shard:
        """Return a shard at the position where it was left."""
        shard = Shard(self.stream, self.recipe, number)
        state = self.states[str(number)]
        shard.at = Position(**{**state, "waiting": list(state["waiting"])})
        shard.pool = pool
        return shard

    def batch(self, records: Sequence[Record], first: int, index: int) -> Batch:
        """Collate one micro-batch of the process's records, the first of which has the place `first`."""
        size = len(records) // self.share.accumulate
        places = range(first + index * size, first + (index + 1) * size)
        return self.task.collate(records[index * size : (index + 1) * size], places)

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of the process's shards."""
        return {"shards": self.states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the positions of all shards, of which this process may read others now."""
        shards = state["shards"]
        if len(shards) != self.recipe.data.shards:
            raise ValueError(f"the checkpoint has {len(shards)} shards, the recipe shards={self.recipe.data.shards}")
        self.states = {str(number): shards[str(number)] for number in self.own}


def prefetch(make: Callable[[], Generator[Item]], ahead: int) -> Iterator[Item]:
    """Yield the items of a generator, up to `ahead` of which a thread makes in advance.

    An error is raised in its place in the order. Generator and thread end with this iterator.
    """
    items, end = make(), object()
    with ThreadPoolExecutor(1, "prefetch") as thread:
        pending = deque(thread.submit(next, items, end) for _ in range(ahead))
        try:
            while (item := pending.popleft().result()) is not end:
                pending.append(thread.submit(next, items, end))
                yield item  # type: ignore[misc]
        finally:
            for future in pending:
                future.cancel()
            thread.submit(items.close).result()


def check_shards(recipe: Recipe, share: Share) -> None:
    """Raise ValueError where a step cannot hold as many examples of each shard, or processes cannot share them."""
    shards, batch_size = recipe.data.shards, recipe.optimization.batch_size
    if batch_size % shards or shards % share.count:
        raise ValueError(
            f"shards={shards} must divide batch_size={batch_size} and be a multiple of the {share.count} processes"
        )


def make_loader(task: Task, recipe: Recipe, share: Share) -> Loader:
    """Return the loader of a process, for examples with an index or for a stream."""
    return (StreamLoader if isinstance(task.train, Stream) else MapLoader)(task, recipe, share)
