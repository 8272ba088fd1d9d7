"""Which of many like cases run every time? Every n-th; the others are slow tests, so that all of them still run."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], step: int, start: int = 0) -> list[Any]:
    """The cases for `parametrize`; a step without a factor in common with the axes' lengths meets every pair of words.

    Of tests that start at different cases each runs others every time.
    """
    found = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
        found.append(case if (number - start) % step == 0 else pytest.param(*values, marks=pytest.mark.slow))
    return found
