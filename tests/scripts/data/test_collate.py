"""Rows of different lengths: padded once, cut to the longest of each batch, nothing lost."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import qkv
from qkv.scripts.data.collate import Packer, pack, pad_batch, padded_columns
from qkv.scripts.data.examples import Record, stack


def rows(*lengths: int) -> list[np.ndarray]:
    return [np.arange(1, length + 1) for length in lengths]


def test_examples_know_how_long_they_are() -> None:
    examples = padded_columns({"one": (rows(2, 4), 0), "two": (rows(3, 1), -100)}, number=[5, 6])
    assert examples.lengths == [5, 5] and len(examples) == 2
    assert examples.__getitems__([1])[0]["number"] == 6


def test_a_batch_is_as_wide_as_its_longest_row() -> None:
    examples = padded_columns({"one": (rows(2, 4, 1), 0)})
    assert pad_batch(examples.__getitems__([0, 2]), {"one": 0})["one"].tolist() == [[1, 2], [1, 0]]
    assert pad_batch(examples.__getitems__([1]), {"one": 0})["one"].tolist() == [[1, 2, 3, 4]]


def test_nothing_but_filling_is_one_column() -> None:
    assert pad_batch([{"one": torch.zeros(4).long()}], {"one": 0})["one"].tolist() == [[0]]


LENGTHS = st.lists(st.integers(0, 20), max_size=12)


def documents(lengths: list[int]) -> list[list[int]]:
    """Documents of these lengths, in which no token comes twice."""
    ends = np.cumsum(lengths).tolist()
    return [list(range(end - length + 1, end + 1)) for end, length in zip(ends, lengths, strict=True)]


def same(one: list[Record], other: list[Record]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(left[name], right[name]) for left, right in zip(one, other, strict=True) for name in left
    )


@settings(deadline=None)
@given(lengths=LENGTHS, length=st.integers(1, 9))
def test_every_token_stands_in_one_row_in_order(lengths: list[int], length: int) -> None:
    rows = list(pack(documents(lengths), length))
    tokens = [token for row in rows for token in row["input_ids"].tolist()]
    assert all(len(row[name]) == length for row in rows for name in row)
    assert tokens[: sum(lengths)] == list(range(1, sum(lengths) + 1)) and set(tokens[sum(lengths) :]) <= {0}
    assert len(rows) == -(-sum(lengths) // length)


@settings(deadline=None)
@given(lengths=LENGTHS, length=st.integers(1, 9))
def test_positions_restart_and_first_tokens_are_no_targets(lengths: list[int], length: int) -> None:
    firsts = {document[0] for document in documents(lengths) if document}
    for row in pack(documents(lengths), length):
        for place, (token, position, label) in enumerate(zip(*row.values(), strict=True)):
            begins = place == 0 or token in firsts or (token == 0 and row["input_ids"][place - 1] != 0)
            assert position == (0 if begins else row["position_ids"][place - 1] + 1)
            assert label == (-100 if begins or token == 0 else token)


@settings(deadline=None)
@given(lengths=LENGTHS, length=st.integers(1, 9), cut=st.integers(0, 12))
def test_a_packer_goes_on_from_what_waits(lengths: list[int], length: int, cut: int) -> None:
    found = documents(lengths)
    first = Packer(length)
    rows = [row for document in found[:cut] for row in first.add(document)]
    second = Packer(length, first.waiting)
    rows += [row for document in found[cut:] for row in second.add(document)] + second.rest()
    assert same(rows, list(pack(found, length)))


def test_the_loss_of_packed_rows_is_that_of_the_documents() -> None:
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(vocab_size=50, **tiny)).double().eval()
    found = [[3, 4, 5, 6, 7], [8, 9, 10, 11], [12]]
    batch = stack(list(pack(found, 12)))
    targets = int((batch["labels"] != -100).sum())
    packed = model(**batch, num_items_in_batch=targets).loss
    apart = [model(input_ids=torch.tensor([d]), labels=torch.tensor([d])).loss * (len(d) - 1) for d in found[:2]]
    assert targets == 7 and abs(packed - sum(apart) / 7) < 1e-10
