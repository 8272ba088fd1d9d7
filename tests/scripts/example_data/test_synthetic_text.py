"""Dates: known days in every language, one meaning each, the same data every time."""

import hashlib
from datetime import date

import pytest

from qkv.scripts.example_data.synthetic_text import (
    DAYS,
    FORMS,
    MONTHS,
    WEEKDAYS,
    copy,
    dates,
    english,
    format_date,
    french,
    numbers,
    reverse,
)
from recipes import recipe_of

KNOWN = {
    ("en", 0): "Thursday, March 5, 1987",
    ("en", 2): "5 March 1987",
    ("de", 0): "Donnerstag, 5. März 1987",
    ("de", 2): "05.03.1987",
    ("fr", 0): "jeudi 5 mars 1987",
    ("es", 1): "5 de marzo de 1987",
    ("es", 2): "5/3/1987",
    ("it", 0): "giovedì 5 marzo 1987",
    ("pt", 0): "quinta-feira, 5 de março de 1987",
    ("pt", 2): "05/03/1987",
}


@pytest.mark.parametrize(("language", "form"), KNOWN)
def test_a_day_as_it_is_written(language: str, form: int) -> None:
    assert format_date(date(1987, 3, 5), language, form) == KNOWN[language, form]


def test_every_language_has_all_its_names() -> None:
    assert FORMS.keys() == MONTHS.keys() == WEEKDAYS.keys()
    for language in FORMS:
        assert len(set(MONTHS[language].split())) == 12 and len(set(WEEKDAYS[language].split())) == 7


def test_what_is_written_means_one_day_and_comes_once() -> None:
    corpus = dates(recipe_of(text=dict(made=400)))
    targets = corpus.targets["train"] + corpus.targets["test"]
    assert len(set(targets)) == 400 and all(date.fromisoformat(target) for target in targets)
    whole = "\n".join(corpus.texts["train"] + corpus.targets["train"])
    assert (
        hashlib.sha256(whole.encode()).hexdigest() == "bc6e53f4da4c76ea62a0fd6b379d170b670390209768f7b80e0c305da0d2b2d5"
    )


def test_more_days_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=f"text.made={DAYS + 1} is more than the {DAYS} days that there are"):
        dates(recipe_of(text=dict(made=DAYS + 1)))


KNOWN_NUMBERS = {
    0: ("zero", "zéro"),
    1: ("one", "un"),
    16: ("sixteen", "seize"),
    17: ("seventeen", "dix-sept"),
    20: ("twenty", "vingt"),
    21: ("twenty-one", "vingt et un"),
    22: ("twenty-two", "vingt-deux"),
    61: ("sixty-one", "soixante et un"),
    70: ("seventy", "soixante-dix"),
    71: ("seventy-one", "soixante et onze"),
    77: ("seventy-seven", "soixante-dix-sept"),
    80: ("eighty", "quatre-vingts"),
    81: ("eighty-one", "quatre-vingt-un"),
    91: ("ninety-one", "quatre-vingt-onze"),
    99: ("ninety-nine", "quatre-vingt-dix-neuf"),
    100: ("one hundred", "cent"),
    101: ("one hundred and one", "cent un"),
    180: ("one hundred and eighty", "cent quatre-vingts"),
    200: ("two hundred", "deux cents"),
    201: ("two hundred and one", "deux cent un"),
    280: ("two hundred and eighty", "deux cent quatre-vingts"),
    1000: ("one thousand", "mille"),
    1001: ("one thousand and one", "mille un"),
    1100: ("one thousand one hundred", "mille cent"),
    2000: ("two thousand", "deux mille"),
    21000: ("twenty-one thousand", "vingt et un mille"),
    80000: ("eighty thousand", "quatre-vingt mille"),
    80080: ("eighty thousand and eighty", "quatre-vingt mille quatre-vingts"),
    100000: ("one hundred thousand", "cent mille"),
    200000: ("two hundred thousand", "deux cent mille"),
    300200: ("three hundred thousand two hundred", "trois cent mille deux cents"),
    999999: (
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neuf cent quatre-vingt-dix-neuf mille neuf cent quatre-vingt-dix-neuf",
    ),
}


@pytest.mark.parametrize("number", KNOWN_NUMBERS)
def test_known_numbers(number: int) -> None:
    assert (english(number), french(number)) == KNOWN_NUMBERS[number]


def test_different_numbers_are_called_differently() -> None:
    some = [*range(3000), *range(70000, 1000000, 997)]
    assert len({english(number) for number in some}) == len({french(number) for number in some}) == len(some)


def test_the_data_are_the_same_every_time() -> None:
    corpus = numbers(recipe_of(text=dict(made=300)))
    assert not set(corpus.texts["train"]) & set(corpus.texts["test"]) and len(corpus.texts["test"]) == 30
    whole = "\n".join(corpus.texts["train"] + corpus.targets["train"])
    assert (
        hashlib.sha256(whole.encode()).hexdigest() == "eb0754ad7a3479d7f5c86f83708a3db861b27f07855685c32229ecd1919f97b5"
    )


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


def test_no_text_comes_twice() -> None:
    corpus = reverse(LETTERS)
    texts = corpus.texts["train"] + corpus.texts["test"]
    assert len(set(texts)) == len(texts) == 200


def test_strings_are_the_same_every_time() -> None:
    digest = hashlib.sha256("\n".join(copy(LETTERS).texts["train"]).encode()).hexdigest()
    assert digest == "747773b991e572e019e51baf2997db9a3c25507f12f08229121f3e8288faa7a2"


def test_more_texts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="text.made=500 different texts of 2 letters are too many"):
        copy(recipe_of(text=dict(made=500, symbols=2)))
