"""Number words are those of the grammar; copies are copies, and reversals reversed."""

import pytest

import tables
from qkv.scripts.example_data.synthetic_text import copy, english, french, numbers, reverse
from recipes import recipe_of

KNOWN = tables.beside(__file__)


@pytest.mark.parametrize("number", KNOWN)
def test_known_numbers(number: int) -> None:
    assert [english(number), french(number)] == KNOWN[number]


def test_different_numbers_are_called_differently() -> None:
    some = [*range(3000), *range(70000, 1000000, 997)]
    assert len({english(number) for number in some}) == len({french(number) for number in some}) == len(some)


def test_more_numbers_than_can_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="text.made=60000 is more than 50000 different numbers; make fewer"):
        numbers(recipe_of(text=dict(made=60000)))


LETTERS = recipe_of(text=dict(made=200, symbols=12))


def test_copies_are_copies_and_reversals_reversed() -> None:
    corpus = copy(LETTERS)
    assert corpus.targets == corpus.texts and {len(text) for text in corpus.texts["train"]} == {12}
    corpus = reverse(LETTERS)
    assert all(text[::-1] == corpus.targets["test"][index] for index, text in enumerate(corpus.texts["test"]))
    assert {len(text) for text in corpus.texts["train"]} == set(range(6, 13))
