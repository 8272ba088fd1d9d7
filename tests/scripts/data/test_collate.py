"""Rows of different lengths: padded once, cut to the longest of each batch, nothing lost."""

import numpy as np
import torch

from qkv.scripts.data.collate import attended, cut, padded, pieces, table


def rows(*lengths: int) -> list[np.ndarray]:
    return [np.arange(1, length + 1) for length in lengths]


def test_a_table_holds_every_row() -> None:
    assert table(rows(2, 0, 3), -7).tolist() == [[1, 2, -7], [-7] * 3, [1, 2, 3]]


def test_examples_know_how_long_they_are() -> None:
    examples = padded({"one": (rows(2, 4), 0), "two": (rows(3, 1), -100)}, number=[5, 6])
    assert examples.lengths == [5, 5] and len(examples) == 2
    assert examples.__getitems__([1])[0]["number"] == 6


def test_a_batch_is_as_wide_as_its_longest_row() -> None:
    examples = padded({"one": (rows(2, 4, 1), 0)})
    assert cut(examples.__getitems__([0, 2]), {"one": 0})["one"].tolist() == [[1, 2], [1, 0]]
    assert cut(examples.__getitems__([1]), {"one": 0})["one"].tolist() == [[1, 2, 3, 4]]


def test_rows_of_their_own_length_make_the_same_batch() -> None:
    examples = padded({"input_ids": (rows(2, 4, 1), 0)})
    own = [{"input_ids": row} for row in rows(2, 4, 1)]
    one, other = (attended(found, None, {"input_ids": 0}) for found in (examples.__getitems__([0, 2]), own[::2]))
    assert one["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_nothing_but_filling_is_one_column() -> None:
    assert cut([{"one": torch.zeros(4).long()}], {"one": 0})["one"].tolist() == [[0]]


def test_pieces_are_the_row() -> None:
    found = pieces(np.arange(7), 3)
    assert [len(piece) for piece in found] == [3, 3, 1] and np.array_equal(np.concatenate(found), np.arange(7))
