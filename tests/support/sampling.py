"""Run every n-th of many similar cases; the others are slow tests, so that all of them still run."""

from collections.abc import Iterable
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
