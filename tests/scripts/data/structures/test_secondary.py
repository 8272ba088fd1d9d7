"""Chains and structures are read from tables; what does not fit is told by row."""

import json
from pathlib import Path

import pytest

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.structures.secondary import check_folded, read_structures
from qkv.scripts.recipes.schema import Recipe
from recipes import recipe_of

ROWS = [(f"G{number:b}".replace("1", "C").replace("0", "A"), number) for number in range(16, 56)]
CHAINS = [(sequence, f"({'.' * (len(sequence) - 2)})") for sequence, _ in ROWS]


def recipe(where: Path, **values: object) -> Recipe:
    """A recipe of chains and structures."""
    return recipe_of(data=str(where), text={"column": "sequence", "label": "structure"}, **values)


@pytest.mark.parametrize(
    ("sequence", "structure", "reason"),
    [("GAAC", "(..)(", "4 residues, but a structure of 5"), (None, "()", "missing"), ("GAAC", " ", "empty"),
     ("GA AC", "(...)", "a space within the chain"), ("GAAC", "(...", "never closed")],
)  # fmt: skip
def test_what_is_no_row_is_told(sequence: object, structure: object, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check_folded(sequence, structure)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_are_split(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    lines = [f"{sequence},{structure}" for sequence, structure in CHAINS]
    if form == "jsonl":
        lines = [json.dumps({"sequence": sequence, "structure": structure}) for sequence, structure in CHAINS]
    path.write_text("\n".join(lines if form == "jsonl" else ["sequence,structure", *lines]))
    data = read_structures(recipe(path, holdout=0.1))
    assert {name: len(own) for name, own in data.sequences.items()} == {"train": 32, "validation": 4, "test": 4}
    read = [pair for name in data.sequences for pair in zip(data.sequences[name], data.structures[name], strict=True)]
    assert sorted(read) == sorted(CHAINS)


def test_bad_rows_are_skipped_up_to_a_share(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sequence,structure\n" + "".join(f"{s},{t}\n" for s, t in CHAINS) + "GAAC,(..\n")
    assert sum(map(len, read_structures(recipe(path, bad_records=0.05)).sequences.values())) == 40
    with raises_sentence("1 of 41 records are bad", "row 42", "4 residues"):
        read_structures(recipe(path))


def test_the_column_of_structures_is_named(tmp_path: Path) -> None:
    with raises_sentence("text.label=structure"):
        read_structures(recipe_of(data=str(tmp_path), architecture="QkvPairForContactPrediction"))
