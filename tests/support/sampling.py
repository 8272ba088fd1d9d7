"""Run some of many similar cases; the others are slow tests, so that all of them still run."""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

# Whether slow cases are collected: twenty thousand take a while that a run without them need not wait.
collect_slow = True


def sampled(cases: Iterable[Any], step: int, start: int = 0) -> list[Any]:
    """Return the cases for `parametrize`, all but every `step`-th marked slow.

    A step without a common factor with the axes' lengths meets every pair of words; tests with other starts run others.
    """
    params = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
        if (number - start) % step == 0:
            params.append(case)
        elif collect_slow:
            params.append(pytest.param(*values, marks=pytest.mark.slow))
    return params


# From which cases are drawn; another environment draws others.
SEED = int(os.environ.get("QKV_CELLS_SEED", "0"))


def drawn(cases: Sequence[Any], count: int) -> Callable[[Any], Any]:
    """Run a test over `count` cases that are drawn from its name; the others are slow."""

    def decorate(test: Any) -> Any:
        order = random.Random(f"{SEED} {test.__name__}").sample([*cases], len(cases))
        slow = [pytest.param(case, marks=pytest.mark.slow) for case in order[count:] if collect_slow]
        return pytest.mark.parametrize("case", [*order[:count], *slow], ids=lambda case: case.name)(test)

    return decorate


def draw_costly(items: Iterable[pytest.Item]) -> None:
    """Mark slow all cases of each test `costly(count)` but that many, drawn from its name."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("costly") and not item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        (count,) = cases[0].get_closest_marker("costly").args
        for item in random.Random(f"{SEED} {name}").sample(cases, max(len(cases) - count, 0)):
            item.add_marker(pytest.mark.slow)
