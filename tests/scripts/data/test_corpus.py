"""Corpora: what is cut off evaluated splits, and which pairs are for the test."""

import pytest

from qkv.scripts.data.corpus import Corpus, paired
from recipes import recipe_of


def test_a_holdout_is_spread_over_the_training_and_every_column_of_it() -> None:
    texts = {"train": [str(index) for index in range(10)], "test": ["x"]}
    corpus = Corpus("n", "t", "s", texts, labels={"train": list(range(10)), "test": [0]})
    held = corpus.divided(recipe_of(holdout=0.2))
    assert held.texts == {"train": list("01235678"), "validation": ["4", "9"], "test": ["x"]}
    assert held.labels["validation"] == [4, 9] and held.targets == {} and len(held.labels["train"]) == 8
    assert corpus.divided(recipe_of()) == corpus and held.divided(recipe_of(holdout=0.5)) == held
    with pytest.raises(ValueError, match="holdout=0.05 of 10 examples is none; make it larger"):
        corpus.divided(recipe_of(holdout=0.05))


def test_every_tenth_pair_is_for_the_test() -> None:
    corpus = paired("n", "t", "s", [(str(number), str(-number)) for number in range(25)])
    assert corpus.texts["test"] == ["0", "10", "20"] and corpus.targets["test"] == ["0", "-10", "-20"]
    assert len(corpus.texts["train"]) == 22 and not set(corpus.texts["train"]) & set(corpus.texts["test"])
