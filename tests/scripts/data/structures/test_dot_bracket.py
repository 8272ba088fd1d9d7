"""Dot-bracket notation: what is written is read again, and what is none is told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.structures.dot_bracket import contact_map, dot_bracket, pairs_of, partners_of


@settings(max_examples=60, deadline=None)
@given(marks=st.lists(st.sampled_from("(.)"), max_size=30))
def test_pairs_are_read_as_they_are_written(marks: list[str]) -> None:
    depth, kept = 0, []
    for mark in marks:  # brackets that close nothing are left out, and what is open is closed
        if mark != ")" or depth:
            kept.append(mark)
            depth += {"(": 1, ")": -1, ".": 0}[mark]
    structure = "".join(kept) + ")" * depth
    assert dot_bracket(pairs_of(structure), len(structure)) == structure


def test_pairs_may_cross_in_brackets_of_another_kind() -> None:
    assert pairs_of("((.[[)).]]") == [(0, 6), (1, 5), (3, 9), (4, 8)]
    assert partners_of("(.)<>,").tolist() == [2, -1, 0, 4, 3, -1]
    assert contact_map("(.)").tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("structure", "reason"),
    [("(.))", "'\\)' at place 4 closes nothing"), ("((.)", "'\\(' at place 1 is never closed"),
     ("(.]", "'\\]' at place 3 closes nothing"), ("(x)", "'x' at place 2 is no dot or bracket")],
)  # fmt: skip
def test_what_is_no_structure_is_told(structure: str, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        pairs_of(structure)
