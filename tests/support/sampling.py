"""Run every n-th of many similar cases; the others are slow tests, so that all of them still run."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], step: int, start: int = 0) -> list[Any]:
    """Return the cases for `parametrize`, all but every `step`-th marked slow.

    A step without a common factor with the axes' lengths meets every pair of words; tests with other starts run others.
    """
    params = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
        params.append(case if (number - start) % step == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return params
