"""Splits of own data: seeded, stratified, by group, by time, and never without a row."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.scripts.data.splits.division import split_rows

SHARES = {"test": 0.1, "validation": 0.2}
LABELS = st.lists(st.sampled_from("abc"), min_size=10, max_size=200)


@given(LABELS, st.integers(0, 5))
def test_every_row_is_in_one_split(labels, seed):
    splits = split_rows(len(labels), SHARES, seed=seed, labels=labels)
    assert sorted(row for rows in splits.values() for row in rows) == list(range(len(labels)))
    assert all(rows == sorted(rows) for rows in splits.values())


@given(LABELS, st.integers(0, 5))
def test_every_split_has_the_classes_of_the_whole(labels, seed):
    splits = split_rows(len(labels), SHARES, seed=seed, labels=labels)
    whole = Counter(labels)
    for name, share in SHARES.items():
        counts = Counter(labels[row] for row in splits[name])
        assert all(abs(counts[label] - share * size) < 1 or size < 4 for label, size in whole.items()), name
    assert set(whole) == {labels[row] for row in splits["train"]}


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 5))
def test_a_group_is_never_in_two_splits(more, seed):
    groups = [*range(8), *more]
    splits = split_rows(len(groups), {"test": 0.4}, seed=seed, groups=groups)
    assert not {groups[row] for row in splits["train"]} & {groups[row] for row in splits["test"]}


def test_what_is_split_by_time_ends_with_the_test():
    splits = split_rows(20, {"validation": 0.1, "test": 0.2}, by_time=True)
    assert splits == {"train": list(range(14)), "validation": [14, 15], "test": [16, 17, 18, 19]}


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_rows_are_refused(count):
    with pytest.raises(ValueError, match=f"10% of {count} rows leaves none for the test split; give more rows"):
        split_rows(count, {"test": 0.1})


def test_numbers_that_are_taken_for_classes_are_told() -> None:
    with pytest.raises(ValueError, match="each of the 20 rows has a class of its own.*model.problem_type=regression"):
        split_rows(20, {"test": 0.1}, seed=0, labels=list(range(20)))
