"""Random letters: what is to be written is what was read or its reverse, the same data every time."""

import hashlib

import pytest

from qkv.scripts.example_data.symbols import copy, reverse
from qkv.scripts.recipes.schema import Recipe, Text

RECIPE = Recipe("r", "", "", "", text=Text(made=200, symbols=12))


def test_copies_are_copies_and_reversals_reversed() -> None:
    corpus = copy(RECIPE)
    assert corpus.targets == corpus.texts and {len(text) for text in corpus.texts["train"]} == {12}
    corpus = reverse(RECIPE)
    assert all(text[::-1] == corpus.targets["test"][index] for index, text in enumerate(corpus.texts["test"]))
    assert {len(text) for text in corpus.texts["train"]} == set(range(6, 13))


def test_no_text_comes_twice() -> None:
    corpus = reverse(RECIPE)
    texts = corpus.texts["train"] + corpus.texts["test"]
    assert len(set(texts)) == len(texts) == 200


def test_the_data_are_the_same_every_time() -> None:
    digest = hashlib.sha256("\n".join(copy(RECIPE).texts["train"]).encode()).hexdigest()
    assert digest == "747773b991e572e019e51baf2997db9a3c25507f12f08229121f3e8288faa7a2"


def test_more_texts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="text.made=500 different texts of 2 letters are too many"):
        copy(Recipe("r", "", "", "", text=Text(made=500, symbols=2)))
