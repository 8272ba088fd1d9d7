"""Chains and structures in dot-bracket notation are read from tables, and what does not fit is told by row."""

import json
from pathlib import Path

import pytest

from errors import raises_sentence
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.structures import check_folded, contact_map, partners_of, read_structures
from recipes import recipe_of

ROWS = [f"G{number:b}".replace("1", "C").replace("0", "A") for number in range(16, 56)]
CHAINS = [(sequence, f"({'.' * (len(sequence) - 2)})") for sequence in ROWS]


def test_pairs_may_cross_in_brackets_of_another_kind() -> None:
    assert partners_of("((.[[)).]]").tolist() == [6, 5, -1, 9, 8, 1, 0, -1, 4, 3]
    assert partners_of("(.)<>,").tolist() == [2, -1, 0, 4, 3, -1]
    assert contact_map("(.)").tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("sequence", "structure", "reason"),
    [("GAAC", "(..)(", "4 residues, but a structure of 5"), (None, "()", "missing"), ("GAAC", " ", "empty"),
     ("GA AC", "(...)", "a space"), ("GAAC", "(.))", "'\\)' at place 4"), ("GAAC", "((.)", "'\\(' at place 1"),
     ("GAA", "(.]", "'\\]' at place 3"), ("GAA", "(x)", "'x' at place 2")],
)  # fmt: skip
def test_a_row_that_is_none_is_told(sequence: object, structure: object, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check_folded(sequence, structure)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_are_split_and_bad_ones_skipped_up_to_a_share(tmp_path: Path, form: str) -> None:
    path, rows = tmp_path / f"x.{form}", [*CHAINS, ("GAAC", "(..")]
    lines = ["sequence,structure", *map(",".join, rows)]
    if form == "jsonl":
        lines = ["", *(json.dumps({"sequence": sequence, "structure": structure}) for sequence, structure in rows)]
    path.write_text("\n".join(lines))
    text = {"column": "sequence", "label": "structure"}
    data = read_structures(recipe_of(data=str(path), text=text, holdout=0.1, bad_records=0.05))
    assert {name: len(own) for name, own in data.sequences.items()} == {"train": 32, "validation": 4, "test": 4}
    read = [pair for name in data.sequences for pair in zip(data.sequences[name], data.structures[name], strict=True)]
    assert sorted(read) == sorted(CHAINS)
    with raises_sentence("1 of 41 records are bad", "row 42", "4 residues"):
        read_structures(recipe_of(data=str(path), text=text))
    with raises_sentence("text.label=structure"):
        read_structures(recipe_of(data=str(path), architecture="QkvPairForContactPrediction"))
