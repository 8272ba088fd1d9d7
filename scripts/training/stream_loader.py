"""How is a stream shared by processes? Each works for some of its shards, and every shard gives as much to every step.

So a step holds the same examples, in the same order, on any number of processes.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import count, islice
from typing import Any

from qkv.scripts.data.stream import Position, Shard, Stream
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Batch, Record, Task
from qkv.scripts.training.prefetch import prefetched
from qkv.scripts.training.sampler import Feed, IndexedFeed, Share

# Steps that are made before they are asked for.
AHEAD = 4


class StreamFeed:
    """One process's shards of a stream; the steps they make are those of any number of processes."""

    def __init__(self, task: Task, recipe: Recipe, share: Share) -> None:
        if not isinstance(task.train, Stream):
            raise TypeError(f"{type(task.train).__name__} is no Stream")
        refuse_unshared(recipe, share)
        self.task, self.stream, self.recipe, self.share = task, task.train, recipe, share
        size = recipe.shards // share.count
        self.own = range(share.rank * size, (share.rank + 1) * size)
        self.states: dict[str, dict[str, Any]] = {str(number): vars(Position()) for number in self.own}

    def parts(self, done: int) -> Iterator[Batch]:
        """Batches of this process's share of each step, made ahead by a thread, with `workers` more to help it."""
        for parts, states in prefetched(partial(self.steps, done), AHEAD):
            yield from parts[:-1]
            self.states = states
            yield parts[-1]

    def steps(self, done: int) -> Iterator[tuple[list[Batch], dict[str, dict[str, Any]]]]:
        """The batches of each step, and where the shards are behind it."""
        with ThreadPoolExecutor(self.recipe.workers) if self.recipe.workers else nullcontext() as pool:
            shards = [self.shard(number, pool) for number in self.own]
            streams = [shard.examples() for shard in shards]
            size = self.recipe.batch_size // self.recipe.shards
            for step in count(done):
                records = [record for stream in streams for record in islice(stream, size)]
                first = step * self.recipe.batch_size + self.own.start * size
                parts = [self.batch(records, first, part) for part in range(self.share.accumulate)]
                yield parts, {str(shard.number): shard.state() for shard in shards}

    def shard(self, number: int, pool: Executor | None) -> Shard:
        """A shard at the position where it was left."""
        shard = Shard(self.stream, self.recipe, number)
        state = self.states[str(number)]
        shard.at = Position(**{**state, "waiting": list(state["waiting"])})
        shard.pool = pool
        return shard

    def batch(self, records: Sequence[Record], first: int, part: int) -> Batch:
        """One part of the process's records, of which the first has that place."""
        size = len(records) // self.share.accumulate
        places = range(first + part * size, first + (part + 1) * size)
        return self.task.collate(records[part * size : (part + 1) * size], places)

    def state(self) -> dict[str, Any]:
        """Where the process's shards are."""
        return {"shards": self.states}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the positions of all shards, of which this process may have others now."""
        found = state["shards"]
        if len(found) != self.recipe.shards:
            raise ValueError(f"the checkpoint has {len(found)} shards, the recipe shards={self.recipe.shards}")
        self.states = {str(number): found[str(number)] for number in self.own}


def refuse_unshared(recipe: Recipe, share: Share) -> None:
    """Raise ValueError where a step cannot be made of as many examples of each shard, or shards not be shared."""
    if recipe.batch_size % recipe.shards or recipe.shards % share.count:
        raise ValueError(
            f"shards={recipe.shards} must divide batch_size={recipe.batch_size} and be a multiple of the "
            f"{share.count} processes"
        )


def make_feed(task: Task, recipe: Recipe, share: Share) -> Feed:
    """What feeds a process: examples by their index, or a stream."""
    return (StreamFeed if isinstance(task.train, Stream) else IndexedFeed)(task, recipe, share)
