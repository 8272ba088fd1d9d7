"""Time steps in turns, and compare laps of the same round."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

Laps = dict[str, list[float]]


def in_turns(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    lap: Callable[[str, Callable[[], object]], float],
    limit: float = math.inf,
) -> Laps:
    """Time every step once in each round, after a warm-up round; the order alternates from round to round.

    After `limit` seconds no further round begins.

    Who comes second meets a warm machine, and other programs disturb neighbours alike.
    """
    laps: Laps = {name: [] for name in steps}
    began = time.perf_counter()
    for turn in range(-1, rounds):
        if turn > 0 and time.perf_counter() - began > limit:
            break
        for name in steps if turn % 2 else reversed([*steps]):
            laps[name] += [lap(name, steps[name])] * (turn >= 0)
    return laps


def seconds(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes, until its device has done it."""
    synchronize()
    began = time.perf_counter()
    step()
    synchronize()
    return time.perf_counter() - began


def synchronize() -> None:
    """Wait for the accelerator, where there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def ratios(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return how many times as fast `other` is as `one`, round by round: least, median, most."""
    paired = sorted(mine / theirs for mine, theirs in zip(one, other, strict=True))
    return [paired[0], median(paired), paired[-1]]
