"""Texts that are too long: cut as the tokenizer cuts them, and counted, with a length that would do."""

import numpy as np
import pytest

from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, cached_tokenizer
from qkv.scripts.data.truncation import count_truncated, is_much, truncate, truncated_sentence
from recipes import recipe_of

TEXTS = [" ".join(["pea", "soup", "salt"][: 1 + number % 3] * (1 + number % 7)) for number in range(40)]


@pytest.mark.parametrize("length", [4, 7, 12, 500])
@pytest.mark.parametrize("words", [{"tokenizer": "words"}, {"tokenizer": "bytes"}])
def test_rows_are_those_of_a_tokenizer_that_truncates(length: int, words: dict[str, str]) -> None:
    tokenize = cached_tokenizer(recipe_of(text=words), TEXTS, ENCODER_TEMPLATE)
    rows, lengths = truncate(tokenize, TEXTS, length)
    expected = tokenize(TEXTS, truncation=True, max_length=length)
    assert all(np.array_equal(one, other) for one, other in zip(rows, expected, strict=True))
    assert lengths == [len(row) for row in tokenize(TEXTS)]


def test_counts_and_shares_are_of_each_split() -> None:
    lengths = {"train": list(range(1, 101)), "test": [3, 90], "validation": []}
    counts = count_truncated(lengths, 80)
    assert counts["texts"] == {"train": 20, "test": 1, "validation": 0}
    assert counts["share"] == {"train": 0.2, "test": 0.5, "validation": 0.0}
    assert sum(own <= counts["enough"] for own in lengths["train"]) == 96
    assert is_much(counts) and not is_much(count_truncated({"train": lengths["train"]}, 95))
    assert truncated_sentence(counts) == (
        "Texts were truncated to text.length=80 tokens: 20 of the train split (20.00 %), 1 of the test split (50.00 %); "
        "text.length=96 would leave 95 % of the training texts whole."
    )


def test_nothing_is_said_of_texts_that_fit() -> None:
    assert truncated_sentence(count_truncated({"train": [3, 4]}, 4)) == "" == truncated_sentence({})


def test_no_value_is_named_where_none_would_help() -> None:
    fixed = count_truncated({"train": [3, 99]}, 77, field="")
    assert truncated_sentence(fixed) == "Texts were truncated to 77 tokens: 1 of the train split (50.00 %)."
    assert "would" not in truncated_sentence(count_truncated({"train": [1] * 99 + [50]}, 20))
