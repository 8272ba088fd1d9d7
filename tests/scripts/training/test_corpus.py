"""Corpora: what is cut off evaluated splits, and which pairs are for the test."""

from qkv.scripts.training.corpus import Corpus, pairs


def test_only_evaluated_splits_are_cut() -> None:
    texts = {"train": ["a", "b", "c"], "test": ["d", "e", "f"]}
    corpus = Corpus("n", "t", "s", texts, labels={"train": [0, 1, 2], "test": [2, 1, 0]})
    few = corpus.limited(2)
    assert few.texts == {"train": ["a", "b", "c"], "test": ["d", "e"]} and few.labels["test"] == [2, 1]
    assert corpus.limited(0) is corpus and few.targets == {}


def test_every_tenth_pair_is_for_the_test() -> None:
    corpus = pairs("n", "t", "s", [(str(number), str(-number)) for number in range(25)])
    assert corpus.texts["test"] == ["0", "10", "20"] and corpus.targets["test"] == ["0", "-10", "-20"]
    assert len(corpus.texts["train"]) == 22 and not set(corpus.texts["train"]) & set(corpus.texts["test"])
