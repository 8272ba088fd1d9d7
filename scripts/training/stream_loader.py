"""Load a stream: every shard gives as many examples to each step, whatever process reads it."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from typing import Any, TypeVar

from qkv.scripts.data.examples import Batch
from qkv.scripts.data.stream import Position, Shard, Stream
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.sampler import MapLoader, Share

AHEAD = 4  # steps that are made in advance
Item = TypeVar("Item")


class StreamLoader:
    """Load one process's shards of a stream; `states` are their positions after the latest step, by their numbers."""

    def __init__(self, task: Task, recipe: Recipe, share: Share) -> None:
        shards, batch_size = recipe.data.shards, recipe.optimization.batch_size
        if batch_size % shards or shards % share.count:
            raise ValueError(
                f"shards={shards} must divide batch_size={batch_size} and be a multiple of the {share.count} processes"
            )
        self.task, self.recipe, self.share = task, recipe, share
        self.own = range(share.rank * shards // share.count, (share.rank + 1) * shards // share.count)
        self.states: dict[str, dict[str, Any]] = {str(number): vars(Position()) for number in self.own}

    def micro_batches(self, done: int) -> Iterator[Batch]:
        """Yield this process's batches, made ahead by a thread."""
        for batches, states in prefetch(partial(self.steps, done), AHEAD):
            yield from batches[:-1]
            self.states = states
            yield batches[-1]

    def steps(self, done: int) -> Generator[tuple[list[Batch], dict[str, dict[str, Any]]]]:
        """Yield the batches of each step, and the positions of the shards after it."""
        batch_size = self.recipe.optimization.batch_size
        size = batch_size // self.recipe.data.shards
        stream: Any = self.task.train
        shards = {name: Shard(stream, self.recipe, int(name), at) for name, at in self.states.items()}
        streams = [shard.examples() for shard in shards.values()]
        for step in count(done):
            records = [record for examples in streams for record in islice(examples, size)]
            first = step * batch_size + self.own.start * size
            places = range(first, first + len(records))
            parts = [slice(start, start + self.share.size) for start in range(0, len(records), self.share.size)]
            batches = [self.task.collate(records[part], places[part]) for part in parts]
            yield batches, {name: shard.state() for name, shard in shards.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the positions of this process's shards from the state of all processes."""
        if len(state) != self.recipe.data.shards:
            raise ValueError(f"the checkpoint has {len(state)} shards, the recipe shards={self.recipe.data.shards}")
        self.states = {str(number): state[str(number)] for number in self.own}


def prefetch(make: Callable[[], Generator[Item]], ahead: int) -> Iterator[Item]:
    """Yield the items of a generator, which a thread makes up to `ahead` in advance, and its error in its place."""
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


def make_loader(task: Task, recipe: Recipe, share: Share) -> MapLoader | StreamLoader:
    """Return the loader of a process, for examples with an index or for a stream."""
    return (StreamLoader if isinstance(task.train, Stream) else MapLoader)(task, recipe, share)
