"""In which order is what seen, and by which process? One endless order for all, of which each takes its share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Batch, Examples, Record, Task
from qkv.scripts.training.accelerator import data_parallel

# An example, and where in the endless order it stands.
Place = tuple[int, int]
# Steps whose examples are sorted by length together.
BUCKET = 50


class Feed(Protocol):
    """What one process trains on, and where it is."""

    def parts(self, done: int) -> Iterator[Batch]:
        """Batches without end, `accumulate` of them for each optimizer step, from the step after `done` on."""

    def state(self) -> dict[str, Any]:
        """What `parts` needs beside the number of steps to go on after the last step taken, as JSON.

        What processes say in groups of the same name is put together; what several say by one name is the same.
        """

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what all processes said together; their number may be another now."""


@dataclass(frozen=True)
class Share:
    """Which part of each step's examples belongs to one of `count` processes, cut into `accumulate` parts."""

    rank: int
    count: int
    accumulate: int
    batch_size: int

    @classmethod
    def of(cls, accelerator: Accelerator, recipe: Recipe) -> "Share":
        """This process's share; ValueError when the batch cannot be cut that way."""
        share = cls(*data_parallel(accelerator), recipe.accumulate, recipe.batch_size)
        if share.batch_size % (share.count * share.accumulate):
            raise ValueError(
                f"batch_size={share.batch_size} cannot be shared by {share.count} processes in parts of "
                f"accumulate={share.accumulate}; make it a multiple of {share.count * share.accumulate}"
            )
        return share

    def parts(self, step: Sequence[Any]) -> Iterator[list[Any]]:
        """This process's parts of a step."""
        size = self.batch_size // (self.count * self.accumulate)
        for part in range(self.accumulate):
            start = (self.rank * self.accumulate + part) * size
            yield list(step[start : start + size])


class Order:
    """The order in which examples are seen: a fresh permutation for each pass, which depends on the seed alone.

    Each step takes the next `batch_size` examples. With `lengths` those of 50 steps are sorted by length, and the
    steps shuffled, so that a batch holds little padding.
    """

    def __init__(self, size: int, recipe: Recipe, lengths: Sequence[int] | None = None) -> None:
        self.size, self.seed, self.batch_size = size, recipe.seed, recipe.batch_size
        self.lengths = lengths

    def steps(self, done: int = 0) -> Iterator[list[Place]]:
        """The examples of each step after `done`, with their places."""
        if self.lengths is not None:
            yield from self.by_length(done, self.lengths)
        order = self.places(done * self.batch_size)
        while True:
            yield list(islice(order, self.batch_size))

    def places(self, start: int) -> Iterator[Place]:
        """Every example again and again, each pass in an order of its own."""
        for epoch in count(start // self.size):
            permutation = np.random.default_rng((self.seed, epoch)).permutation(self.size).tolist()
            first = epoch * self.size
            skipped = max(start - first, 0)
            yield from zip(count(first + skipped), permutation[skipped:], strict=False)

    def by_length(self, done: int, lengths: Sequence[int]) -> Iterator[list[Place]]:
        """Steps of examples of like length."""
        size = self.batch_size
        for bucket in count(done // BUCKET):
            places = list(islice(self.places(bucket * BUCKET * size), BUCKET * size))
            # A stable sort of a shuffled list: examples of one length stay shuffled.
            places.sort(key=lambda place: lengths[place[1]])
            shuffled = np.random.default_rng((self.seed, bucket, BUCKET)).permutation(BUCKET)
            for step in shuffled[max(done - bucket * BUCKET, 0) :]:
                yield places[step * size : (step + 1) * size]


class Drawn(Dataset[Any]):
    """Examples that are asked for by place, and come with it."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitems__(self, places: Sequence[Place]) -> list[tuple[int, Record]]:
        records = self.examples.__getitems__([index for _, index in places])
        return [(place, record) for (place, _), record in zip(places, records, strict=True)]


@dataclass(frozen=True)
class Parts:
    """The places of one process, a list for each part of each step after `done`."""

    order: Order
    share: Share
    done: int

    def __iter__(self) -> Iterator[list[Place]]:
        for step in self.order.steps(self.done):
            yield from self.share.parts(step)


class IndexedFeed:
    """One process's share of examples that have an index; where it is follows from the number of steps taken."""

    def __init__(self, task: Task, recipe: Recipe, share: Share) -> None:
        self.task, self.share, self.workers = task, share, recipe.workers
        lengths = task.lengths() if recipe.group_by_length else None
        self.order = Order(len(task.examples()), recipe, lengths)

    def parts(self, done: int) -> Iterator[Batch]:
        """Batches of this process's share, made ahead by `workers` further processes where there are any."""
        loader = DataLoader(
            Drawn(self.task.examples()),
            batch_sampler=Parts(self.order, self.share, done),
            collate_fn=self.collate,
            num_workers=self.workers,
            # Of its own, for it would take a number from the one that dropout draws from.
            generator=torch.Generator(),
        )
        return iter(loader)

    def collate(self, drawn: Sequence[tuple[int, Record]]) -> Batch:
        """A batch of records and their places."""
        places, records = zip(*drawn, strict=True)
        return self.task.collate(records, places)

    def state(self) -> dict[str, Any]:
        """Nothing but the number of steps says where it is."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to take up."""
