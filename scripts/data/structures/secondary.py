"""Rows of chains and the residues of each that pair, from the columns of files, folders and data sets of the Hub."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from datasets import Dataset

from qkv.scripts.data.corpus import DataSet, Splits
from qkv.scripts.data.examples import Record
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.splits.division import divide_rows, group_columns, groups_of, text_sketches
from qkv.scripts.data.structures.dot_bracket import pairs_of
from qkv.scripts.data.validation import RecordValidation, check_text, valid_rows
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class SecondaryStructures(DataSet):
    """Chains in splits, a letter for each residue, and which residues pair, in dot-bracket notation."""

    sequences: Splits[str]
    structures: Splits[str]
    row_fields: ClassVar[Sequence[str]] = ("sequences", "structures")


def read_structures(recipe: Recipe) -> SecondaryStructures:
    """Read chains and structures, the columns `text.column` and `text.label`; ValueError where one is missing."""
    where, invalid = recipe.data.source, RecordValidation(recipe.data.bad_records)
    if recipe.text.label is None:
        raise ValueError(
            f"architecture={recipe.model.architecture!r} learns structures; name their column: text.label=structure"
        )
    names = ["train", *(name for name in ("validation", "test") if name in splits(where))]
    tables = {name: read_folded(recipe, name, invalid) for name in names}
    rows = {name: [check_folded(value) for value in table[column_of(recipe)]] for name, table in tables.items()}
    sequences = {name: [sequence for sequence, _ in own] for name, own in rows.items()}
    division = divide_rows(text_sketches(sequences), recipe, groups=groups_of(tables, recipe))
    return SecondaryStructures(
        **public_names(where),
        sequences=division.of_lists(sequences),
        structures=division.of_lists({name: [structure for _, structure in own] for name, own in rows.items()}),
        invalid_records=invalid,
        report=division.report,
    )


def column_of(recipe: Recipe) -> str:
    """Return the name of the column that holds both a chain and its structure."""
    return f"{recipe.text.column} and {recipe.text.label}"


def read_folded(recipe: Recipe, split: str, invalid: RecordValidation) -> Dataset:
    """Read the valid rows of a split, with chain and structure in one column."""
    sequence, structure = recipe.text.column, str(recipe.text.label)
    table: Any = read_split(recipe, [sequence, structure, *group_columns(recipe)], split)

    def join(record: Record) -> Record:
        return {column_of(recipe): json.dumps([record[sequence], record[structure]])}

    joined = table.map(join, remove_columns=[sequence, structure], desc="joining chains and structures")
    return valid_rows(joined, {column_of(recipe): check_folded}, invalid)


def check_chain(value: Any) -> str:
    """Return a chain without what stands around it; InvalidRecord where it is empty, or has a space within."""
    chain = check_text(value).strip()
    if any(letter.isspace() for letter in chain):
        raise InvalidRecord("a space within the chain, of which each letter is a residue")
    return chain


def check_folded(value: str) -> tuple[str, str]:
    """Return a chain and its structure; InvalidRecord where these are none, or of different lengths."""
    sequence, structure = (check_text(each).strip() for each in json.loads(value))
    check_chain(sequence)
    if len(sequence) != len(structure):
        raise InvalidRecord(f"{len(sequence)} residues, but a structure of {len(structure)}")
    pairs_of(structure)
    return sequence, structure
