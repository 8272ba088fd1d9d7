"""Read chains of amino acids with the positions of their atoms, from tables and files of structures.

Atoms of a residue are in the order of AlphaFold 2's atom14: N, CA, C, O, then the side chain's.
"""

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.own_tables import valid_tables
from qkv.scripts.data.questions import as_object
from qkv.scripts.data.splits.division import divide_rows
from qkv.scripts.data.splits.duplicates import text_sketches
from qkv.scripts.data.structure_files import BACKBONE
from qkv.scripts.data.text_columns import check_chain, label_column
from qkv.scripts.recipes.schema import Recipe

ATOMS = 14  # of a residue, at most


class FoldedChains(Corpus):
    """A corpus of proteins, a letter for each residue; targets are the positions of atoms, as JSON."""


def read_folded(recipe: Recipe) -> FoldedChains:
    """Read chains and positions, the columns `text.column` and `text.label`; ValueError where one is missing."""
    column, label = recipe.text.column, label_column(recipe, "coordinates")
    tables, facts = valid_tables(recipe, {(column, label): atoms_of})
    chains = {name: list(map(check_protein, table[column])) for name, table in tables.items()}
    targets = {name: list(map(as_text, table[label])) for name, table in tables.items()}
    division = divide_rows(text_sketches(chains), recipe, tables)
    lists: dict[str, Any] = {"texts": division.of_lists(chains), "targets": division.of_lists(targets)}
    return FoldedChains(**facts, **lists, report=division.report)


def as_text(value: Any) -> str:
    """Return positions as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def check_protein(value: Any) -> str:
    """Return a chain; InvalidRecord where it is not written in capital letters, a residue each."""
    chain = check_chain(value)
    if not re.fullmatch("[A-Z]+", chain):
        raise InvalidRecord(f"{chain[:20]!r}, expected amino acids as capital letters, such as MKTAYIAKQR")
    return chain


def atoms_of(sequence: Any, coordinates: Any) -> NDArray[np.float32]:
    """Return positions in Å (L, 14, 3), NaN for unknown ones: a list for each residue, of [x, y, z] or null by atom.

    InvalidRecord for another form, and where no residue has its whole backbone.
    """
    chain, residues = check_protein(sequence), as_object(coordinates)
    if not isinstance(residues, list) or len(residues) != len(chain):
        count = len(residues) if isinstance(residues, list) else "no"
        raise InvalidRecord(f"{len(chain)} residues, but coordinates of {count}")
    positions = np.full((len(chain), ATOMS, 3), np.nan, np.float32)
    try:
        for own, atoms in zip(positions, residues, strict=True):
            for place, atom in enumerate(atoms or ()):
                own[place] = np.nan if atom is None else np.asarray(atom, np.float32).reshape(3)
    except (TypeError, ValueError, IndexError):
        form = f"a list for each residue of up to {ATOMS} atoms, each [x, y, z] or null"
        raise InvalidRecord(f"coordinates that are not {form}") from None
    if not np.isfinite(positions[:, : len(BACKBONE)]).all((1, 2)).any():
        raise InvalidRecord(f"no residue has positions of {', '.join(BACKBONE)}")
    return positions
