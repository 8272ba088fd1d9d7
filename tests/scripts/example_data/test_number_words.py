"""Number words: known values of both grammars, no number in both splits, the same data every time."""

import hashlib

import pytest

from qkv.scripts.example_data.number_words import english, french, numbers
from qkv.scripts.recipes.schema import Recipe, Text

KNOWN = {
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


@pytest.mark.parametrize("number", KNOWN)
def test_known_numbers(number: int) -> None:
    assert (english(number), french(number)) == KNOWN[number]


def test_different_numbers_are_called_differently() -> None:
    some = [*range(3000), *range(70000, 1000000, 997)]
    assert len({english(number) for number in some}) == len({french(number) for number in some}) == len(some)


def test_the_data_are_the_same_every_time() -> None:
    corpus = numbers(Recipe("r", "", "", "", text=Text(made=300)))
    assert not set(corpus.texts["train"]) & set(corpus.texts["test"]) and len(corpus.texts["test"]) == 30
    whole = "\n".join(corpus.texts["train"] + corpus.targets["train"])
    assert (
        hashlib.sha256(whole.encode()).hexdigest() == "eb0754ad7a3479d7f5c86f83708a3db861b27f07855685c32229ecd1919f97b5"
    )


def test_more_numbers_than_can_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="text.made=60000 is more than 50000 different numbers; make fewer"):
        numbers(Recipe("r", "", "", "", text=Text(made=60000)))
