"""Mix the examples of several tasks at rates, in an order that any epoch can be drawn from alone.

Source: Raffel et al. 2020, T5, §3.5.2, https://jmlr.org/papers/v21/20-074.html
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDER = 1  # in the seeds of the tasks' orders, apart from those of epochs


def mixing_rates(sizes: Mapping[str, int], limit: int | None, temperature: float) -> dict[str, float]:
    """Return the rate of each task: by its examples, of which `limit` count at most, to the power of 1/temperature."""
    counted = {task: min(size, limit or size) ** (1 / temperature) for task, size in sizes.items()}
    return {task: own / sum(counted.values()) for task, own in counted.items()}


@dataclass(frozen=True)
class Mixture:
    """The examples of each task, by their indices, and the rate that each is drawn at.

    An epoch is as long as all examples are together. Each task goes through its examples in orders of its own, again
    and again, on from where the epoch before left off.
    """

    examples: Mapping[str, NDArray[np.int64]]
    rates: Mapping[str, float]

    @classmethod
    def of(cls, tasks: Sequence[str], limit: int | None, temperature: float) -> "Mixture":
        """Make the mixture of examples, each with the name of its task."""
        names = np.asarray(tasks)
        examples = {str(task): np.flatnonzero(names == task) for task in np.unique(names)}
        return cls(examples, mixing_rates({task: len(own) for task, own in examples.items()}, limit, temperature))

    def epoch(self, number: int, seed: int) -> NDArray[np.int64]:
        """Return the examples of an epoch, those of a task behind each other."""
        size, rates = sum(map(len, self.examples.values())), [self.rates[task] for task in self.examples]
        # Whole numbers within one of each task's quota, whose sum is the size.
        counts, parts = np.diff(np.floor(np.cumsum([0.0, *rates]) * size + 0.5).astype(int)).tolist(), []
        for task, (own, count) in enumerate(zip(self.examples.values(), counts, strict=True)):
            start, passes = number * count, range(number * count // len(own), -(-(number + 1) * count // len(own)))
            orders = [np.random.default_rng((seed, task, each, ORDER)).permutation(own) for each in passes]
            skipped = start - passes.start * len(own)
            parts.append(np.concatenate(orders)[skipped : skipped + count])
        return np.concatenate(parts)
