"""Dot-bracket notation of nested pairs: `((...))` has the pairs (0, 6) and (1, 5), a dot is a residue without one.

Pairs that cross others stand in brackets of another kind: `((..[[.))..]]`.

Source: Hofacker et al. 1994, https://doi.org/10.1007/BF00818163
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.examples import InvalidRecord

BRACKETS = {")": "(", "]": "[", "}": "{", ">": "<"}
UNPAIRED = ".,:_-"


def dot_bracket(pairs: Iterable[tuple[int, int]], length: int) -> str:
    """Write nested pairs of a chain of that length."""
    symbols = ["."] * length
    for first, last in pairs:
        symbols[first], symbols[last] = "(", ")"
    return "".join(symbols)


def pairs_of(structure: str) -> list[tuple[int, int]]:
    """Read the pairs, smaller place first, in order; InvalidRecord for a bracket without its other."""
    opened: dict[str, list[int]] = {bracket: [] for bracket in BRACKETS.values()}
    pairs = []
    for place, mark in enumerate(structure):
        if mark in opened:
            opened[mark].append(place)
        elif mark in BRACKETS:
            if not opened[BRACKETS[mark]]:
                raise InvalidRecord(f"{mark!r} at place {place + 1} closes nothing")
            pairs.append((opened[BRACKETS[mark]].pop(), place))
        elif mark not in UNPAIRED:
            raise InvalidRecord(f"{mark!r} at place {place + 1} is no dot or bracket")
    left = sorted(place for places in opened.values() for place in places)
    if left:
        raise InvalidRecord(f"{structure[left[0]]!r} at place {left[0] + 1} is never closed")
    return sorted(pairs)


def partners_of(structure: str) -> NDArray[np.int64]:
    """Return the place of the residue that each one pairs with (L,), -1 where there is none."""
    partners = np.full(len(structure), -1)
    for first, last in pairs_of(structure):
        partners[first], partners[last] = last, first
    return partners


def contact_map(structure: str) -> NDArray[np.int64]:
    """Return 1 for two residues that pair, else 0 (L, L)."""
    return (partners_of(structure)[:, None] == np.arange(len(structure))).astype(np.int64)
