"""Rows of chains and the pairs of their residues in dot-bracket notation, from the columns of your own data.

`((...))` has the pairs (0, 6) and (1, 5), a dot is a residue without one; pairs that cross others stand in brackets of
another kind: `((..[[.))..]]`. Source: Hofacker et al. 1994, https://doi.org/10.1007/BF00818163
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.columns import BRACKETS, UNPAIRED
from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.own_tables import valid_tables
from qkv.scripts.data.splits.division import divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.data.validation import check_text
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class SecondaryStructures(DataSet):
    """Chains in splits, a letter for each residue, and the residues that pair, in dot-bracket notation."""

    sequences: Splits[str]
    structures: Splits[str]
    row_fields: ClassVar[Sequence[str]] = ("sequences", "structures")


def read_structures(recipe: Recipe) -> SecondaryStructures:
    """Read chains and structures, the columns `text.column` and `text.label`; ValueError where one is missing."""
    column, label = recipe.text.column, recipe.text.label
    if label is None:
        raise ValueError(
            f"architecture={recipe.model.architecture!r} learns structures; name their column: text.label=structure"
        )
    tables, facts = valid_tables(recipe, {(column, label): check_folded})
    sequences, structures = (
        {name: list(map(str.strip, table[each])) for name, table in tables.items()} for each in (column, label)
    )
    division = divide_rows(text_sketches(sequences), recipe, tables)
    return SecondaryStructures(
        **facts, sequences=division.of_lists(sequences), structures=division.of_lists(structures),
        report=division.report,
    )  # fmt: skip


def check_chain(value: Any) -> str:
    """Return a chain without the spaces around it; InvalidRecord where it is empty, or has a space within."""
    chain = check_text(value).strip()
    if any(letter.isspace() for letter in chain):
        raise InvalidRecord("a space within the chain, of which each letter is a residue")
    return chain


def check_folded(sequence: Any, structure: Any) -> None:
    """Raise InvalidRecord for no chain or structure, or for one of each with different lengths."""
    residues, places = len(check_chain(sequence)), check_text(structure).strip()
    if residues != len(places):
        raise InvalidRecord(f"{residues} residues, but a structure of {len(places)}")
    partners_of(places)


def partners_of(structure: str) -> NDArray[np.int64]:
    """Return the place of the residue that each one pairs with (L,), -1 where there is none.

    InvalidRecord for a bracket without its other.
    """
    opened: dict[str, list[int]] = {bracket: [] for bracket in BRACKETS.values()}
    partners = np.full(len(structure), -1)
    for place, mark in enumerate(structure):
        if mark in opened:
            opened[mark].append(place)
        elif mark in BRACKETS:
            if not opened[BRACKETS[mark]]:
                raise InvalidRecord(f"{mark!r} at place {place + 1} closes nothing")
            first = opened[BRACKETS[mark]].pop()
            partners[first], partners[place] = place, first
        elif mark not in UNPAIRED:
            raise InvalidRecord(f"{mark!r} at place {place + 1} is no dot or bracket")
    for place in sorted(place for places in opened.values() for place in places):
        raise InvalidRecord(f"{structure[place]!r} at place {place + 1} is never closed")
    return partners


def contact_map(structure: str) -> NDArray[np.int64]:
    """Return 1 for two residues that pair, else 0 (L, L)."""
    return (partners_of(structure)[:, None] == np.arange(len(structure))).astype(np.int64)
