"""Sample the examples of each step, in an order that does not depend on the number of processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from qkv.scripts.data.examples import Batch
from qkv.scripts.data.mixture import Mixture
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.accelerator import data_parallel

Place = tuple[int, int]  # of an example: its number in the endless order, and its index
BUCKET = 50  # steps whose examples are sorted by length together


@dataclass(frozen=True)
class Share:
    """The part of each step's examples of one of `count` processes, in `accumulate` micro-batches."""

    rank: int
    count: int
    accumulate: int
    batch_size: int

    @classmethod
    def of(cls, accelerator: Accelerator, recipe: Recipe) -> "Share":
        """Return this process's share; ValueError when the batch cannot be split evenly."""
        share = cls(*data_parallel(accelerator), recipe.optimization.accumulate, recipe.optimization.batch_size)
        if share.batch_size % (share.count * share.accumulate):
            raise ValueError(
                f"batch_size={share.batch_size} cannot be split over {share.count} processes with "
                f"accumulate={share.accumulate}; make it a multiple of {share.count * share.accumulate}"
            )
        return share

    @property
    def size(self) -> int:
        """The examples of a micro-batch."""
        return self.batch_size // (self.count * self.accumulate)

    def micro_batches(self, step: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield this process's micro-batches of a step."""
        for index in range(self.rank * self.accumulate, (self.rank + 1) * self.accumulate):
            yield list(step[index * self.size : (index + 1) * self.size])


def places(size: int, seed: int, start: int = 0, mixture: Mixture | None = None) -> Iterator[Place]:
    """Yield `size` examples without end from a place on: each epoch in another order, which the seed alone decides.

    A mixture chooses the examples of each epoch.
    """
    for epoch in count(start // size):
        examples = np.arange(size) if mixture is None else mixture.epoch(epoch, seed)
        permutation = np.random.default_rng((seed, epoch)).permutation(examples).tolist()
        first = epoch * size
        skipped = max(start - first, 0)
        yield from zip(count(first + skipped), permutation[skipped:], strict=False)


def steps(
    size: int, recipe: Recipe, lengths: Sequence[int] | None = None, done: int = 0, mixture: Mixture | None = None
) -> Iterator[list[Place]]:
    """Yield the examples of each step after `done`, with their places, whatever the number of processes.

    With `lengths` the examples of 50 steps are sorted by length, and the steps shuffled, which saves padding.
    """
    seed, batch = recipe.seed, recipe.optimization.batch_size
    if lengths is None:
        order = places(size, seed, done * batch, mixture)
        while True:
            yield list(islice(order, batch))
    for bucket in count(done // BUCKET):
        near = islice(places(size, seed, bucket * BUCKET * batch, mixture), BUCKET * batch)
        # A stable sort: examples of one length stay shuffled.
        ordered = sorted(near, key=lambda place: lengths[place[1]])
        shuffled = np.random.default_rng((seed, bucket, BUCKET)).permutation(BUCKET)
        for step in shuffled[max(done - bucket * BUCKET, 0) :]:
            yield ordered[step * batch : (step + 1) * batch]


class MapLoader:
    """Load one process's share of indexed examples; the number of steps is all of its state."""

    states: ClassVar[dict[str, Any]] = {}

    def __init__(self, task: Task, recipe: Recipe, share: Share) -> None:
        self.task, self.share, self.workers = task, share, recipe.data.workers
        lengths = task.lengths() if recipe.optimization.group_by_length else None
        self.steps = partial(steps, len(task.examples()), recipe, lengths, mixture=task.mixture)

    def micro_batches(self, done: int) -> Iterator[Batch]:
        """Yield batches without end, `accumulate` of them for each optimizer step, from the step after `done` on."""
        dataset: Any = self
        loader = DataLoader(
            dataset,
            batch_size=None,  # each item is a batch
            sampler=(batch for step in self.steps(done) for batch in self.share.micro_batches(step)),
            num_workers=self.workers,
            # Or it would draw from the generator of dropout.
            generator=torch.Generator(),
        )
        return iter(loader)

    def __getitem__(self, places: Sequence[Place]) -> Batch:
        """Return the batch of the examples at these places, for DataLoader."""
        positions, indices = zip(*places, strict=True)
        return self.task.collate(self.task.examples().__getitems__(list(indices)), positions)
