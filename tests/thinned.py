"""Which of many like cases run every time? Every n-th; the others are slow tests, so that all of them still run."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], step: int) -> list[Any]:
    """The cases for `parametrize`; a step without a factor in common with the axes' lengths meets every pair of words."""
    found = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
        found.append(case if number % step == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return found
