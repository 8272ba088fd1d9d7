"""Rows of chains and the residues of each that pair, from the columns of files, folders and data sets of the Hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.loading import public_names
from qkv.scripts.data.splits.division import divide_rows, groups_of, text_sketches
from qkv.scripts.data.structures.dot_bracket import pairs_of
from qkv.scripts.data.text_columns import read_tables
from qkv.scripts.data.validation import RecordValidation, check_text
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class SecondaryStructures(DataSet):
    """Chains in splits, a letter for each residue, and the residues that pair, in dot-bracket notation."""

    sequences: Splits[str]
    structures: Splits[str]
    row_fields: ClassVar[Sequence[str]] = ("sequences", "structures")


def read_structures(recipe: Recipe) -> SecondaryStructures:
    """Read chains and structures, the columns `text.column` and `text.label`; ValueError where one is missing."""
    column, label, invalid = recipe.text.column, recipe.text.label, RecordValidation(recipe.data.bad_records)
    if label is None:
        raise ValueError(
            f"architecture={recipe.model.architecture!r} learns structures; name their column: text.label=structure"
        )
    tables = read_tables(recipe, {(column, label): check_folded}, invalid)
    sequences, structures = (
        {name: list(map(str.strip, table[each])) for name, table in tables.items()} for each in (column, label)
    )
    division = divide_rows(text_sketches(sequences), recipe, groups=groups_of(tables, recipe))
    return SecondaryStructures(
        **public_names(recipe.data.source), sequences=division.of_lists(sequences),
        structures=division.of_lists(structures), invalid_records=invalid, report=division.report,
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
    pairs_of(places)
