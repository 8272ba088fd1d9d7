"""Dates: known days in every language, one meaning each, the same data every time."""

import hashlib
from datetime import date

import pytest

import tables
from qkv.scripts.example_data.synthetic_text import (
    copy,
    dates,
    english,
    format_date,
    french,
    numbers,
    reverse,
)
from recipes import recipe_of

KNOWN = tables.beside(__file__)


@pytest.mark.parametrize(("language", "form", "written"), KNOWN["dates"])
def test_a_day_as_it_is_written(language: str, form: int, written: str) -> None:
    assert format_date(date(1987, 3, 5), language, form) == written


def test_what_is_written_means_one_day_and_comes_once() -> None:
    corpus = dates(recipe_of(text=dict(made=400)))
    targets = corpus.targets["train"] + corpus.targets["test"]
    assert len(set(targets)) == 400 and all(date.fromisoformat(target) for target in targets)
    whole = "\n".join(corpus.texts["train"] + corpus.targets["train"])
    assert (
        hashlib.sha256(whole.encode()).hexdigest() == "bc6e53f4da4c76ea62a0fd6b379d170b670390209768f7b80e0c305da0d2b2d5"
    )


@pytest.mark.parametrize("number", KNOWN["numbers"])
def test_known_numbers(number: int) -> None:
    assert [english(number), french(number)] == KNOWN["numbers"][number]


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
