"""Simpler methods: each against what one can work out, or a slow version of itself."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.data.examples import Columns
from qkv.scripts.tasks import baselines


def slow_bits(train: bytes, test: bytes, order: int) -> float:
    """Witten-Bell by dictionaries, byte by byte."""
    total = 0.0
    for place, byte in enumerate(test):
        probability = 1 / 256
        for length in range(min(order, place + 1)):
            context = test[place - length : place]
            followers = Counter(train[i] for i in range(length, len(train)) if train[i - length : i] == context)
            if length == 0:
                followers = Counter(train)
            if followers:
                kinds, count = len(followers), sum(followers.values())
                probability = (followers[byte] + kinds * probability) / (count + kinds)
        total -= math.log2(probability)
    return total / len(test)


def test_bytes_are_guessed_as_by_hand() -> None:
    train, test = b"the cat sat on the mat. the end", b"the mat sat. a hat"
    found = baselines.bits(*(np.frombuffer(text, np.uint8).astype(np.int64) for text in (train, test)), order=3)
    assert found == pytest.approx(slow_bits(train, test, 3), rel=0.02)


def test_the_byte_ngram_is_of_each_split() -> None:
    corpus = Corpus("c", "t", "s", {"train": ["abc" * 50], "test": ["abc" * 9], "validation": ["é"]})
    (found,) = baselines.byte_ngram(corpus).values()
    assert found.keys() == {"test", "validation"} and found["test"]["bits_per_byte"] < 1


def test_words_tell_topics_apart() -> None:
    texts = [f"{word} {number} thing" for number in range(6) for word in ("cat purrs", "dog barks")]
    corpus = Corpus("c", "t", "s", {"train": texts, "test": ["a cat purrs", "a dog barks"]},
                    {"train": [0, 1] * 6, "test": [0, 1]}, ["cat", "dog"])  # fmt: skip
    found = baselines.linear_models(corpus)
    assert len(found) == 2 and all(split["test"] == {"accuracy": 1, "f1_macro": 1} for split in found.values())


def test_a_copy_is_right_where_nothing_changes() -> None:
    corpus = paired("c", "t", "s", [("a", "a"), ("b", "c")] * 10)
    assert baselines.copy_source(corpus, ["exact_match"]) == {"the source, copied": {"test": {"exact_match": 1.0}}}


def test_pairs_are_as_frequent_as_they_are_in_training() -> None:
    sequences, structures = ["GAAAC", "GAAAC", "CAAAG"], ["(...)", ".....", "(...)"]
    found = baselines.pair_frequencies(sequences, structures)
    expected = np.zeros((5, 5))
    expected[0, 4] = expected[4, 0] = 1 / 2
    assert np.array_equal(found("GAAAC"), expected)
    assert found("CAAAG")[0, 4] == 1 and found("CUUUGAAA").shape == (8, 8)


def test_the_most_frequent_token_is_no_special_one() -> None:
    train = Columns({"input_ids": torch.tensor([[0, 0, 0, 7, 7, 8]])})
    split = Columns({"labels": torch.tensor([[-100, 7, 8, 7]])})
    found = baselines.most_frequent_token(train, torch.tensor([0, 99]), {"test": split})
    assert found["the most frequent token"]["test"]["accuracy"] == pytest.approx(2 / 3)
