"""Synthetic texts and their targets: copies, reversals, number words in French, dates in ISO 8601."""

import math
import string
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np

from qkv.scripts.common.resources import table
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.recipes.schema import Recipe

LETTERS = np.array(list(string.ascii_lowercase))
LETTERS_HOME = "https://docs.python.org/3/library/string.html#string.ascii_lowercase"
LIMIT = 1_000_000
RULES = "https://en.wikipedia.org/wiki/French_numerals"
TABLES = table(__file__)
DATES, NUMBERS = TABLES["dates"], TABLES["numbers"]
FIRST, DAYS = date(1900, 1, 1), 73049  # up to the end of 2099


def copy(recipe: Recipe) -> Corpus:
    """Make texts of `text.symbols` random letters, whose targets are the same."""
    count = recipe.text.symbols
    made = [(letters, letters) for letters in draw_strings(recipe.text.made, count, count)]
    return paired("copy", f"copies of {count} random letters", LETTERS_HOME, made)


def reverse(recipe: Recipe) -> Corpus:
    """Make texts of up to `text.symbols` random letters, and at least half of it, whose targets are their reversals."""
    count = recipe.text.symbols
    made = [(letters, letters[::-1]) for letters in draw_strings(recipe.text.made, (count + 1) // 2, count)]
    return paired("reverse", f"reversals of up to {count} random letters", LETTERS_HOME, made)


def draw_strings(count: int, shortest: int, longest: int) -> list[str]:
    """Draw different texts of random letters, the same ones every time; ValueError where there are not so many."""
    if longest < 9 and count > len(LETTERS) ** longest // 2:
        raise ValueError(f"text.made={count} different texts of {longest} letters are too many; make text.symbols more")
    random, texts = np.random.default_rng(0), dict[str, None]()
    while len(texts) < count:
        length = random.integers(shortest, longest + 1)
        texts["".join(LETTERS[random.integers(0, len(LETTERS), length)])] = None
    return list(texts)


def numbers(recipe: Recipe) -> Corpus:
    """Make English number words whose targets are French: different numbers, as many of three digits as of six."""
    count = recipe.text.made
    if count > LIMIT // 20:
        raise ValueError(f"text.made={count} is more than {LIMIT // 20} different numbers; make fewer")
    random, drawn = np.random.default_rng(0), dict[int, None]()
    while len(drawn) < count:
        drawn[int(math.exp(random.uniform(0, math.log(LIMIT)))) - 1] = None
    written = [(english(number), french(number)) for number in drawn]
    return paired("numbers", "English and French number words", RULES, written)


def english(number: int) -> str:
    """Spell a number below a million in English."""
    words = NUMBERS["en"]
    if number < 20:
        return words["ones"][number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return words["tens"][tens - 2] + (f"-{words['ones'][ones]}" if ones else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    many, rest = divmod(number, size)
    joint = " and " if 0 < rest < 100 else " "
    return f"{english(many)} {name}" + (joint + english(rest) if rest else "")


def french(number: int) -> str:
    """Spell a number below a million in French, as before 1990."""
    if number < 100:
        return french_tens(number)
    if number < 1000:
        many, rest = divmod(number, 100)
        hundred = "cent" if many == 1 else f"{french_tens(many)} cent"
        return f"{hundred} {french_tens(rest)}" if rest else hundred + "s" * (many > 1)
    many, rest = divmod(number, 1000)
    # Before mille, which is a number itself, vingt and cent take no plural.
    thousand = "mille" if many == 1 else f"{french(many).removesuffix('s') if plural(many) else french(many)} mille"
    return f"{thousand} {french(rest)}" if rest else thousand


def plural(number: int) -> bool:
    """Tell whether the French for a number below 1000 ends in the plural of vingt or cent."""
    return number % 100 == 80 or (number % 100 == 0 and number > 100)


def french_tens(number: int) -> str:
    """Spell a number below a hundred in French: 70 and 90 count on from 60 and 80."""
    words = NUMBERS["fr"]
    if number < 20:
        return words["ones"][number]
    tens, ones = divmod(number, 10)
    if tens in (7, 9):
        ones += 10
    if ones == 0:
        return words["tens"][tens - 2] + "s" * (tens == 8)
    joint = " et " if ones in (1, 11) and tens < 8 else "-"
    return words["tens"][tens - 2] + joint + words["ones"][ones]


def dates(recipe: Recipe) -> Corpus:
    """Make days of two centuries in one of the formats of a language, whose targets are ISO dates."""
    if recipe.text.made > DAYS:
        raise ValueError(f"text.made={recipe.text.made} is more than the {DAYS} days that there are; make fewer")
    return paired(
        "dates", "dates in six languages and ISO 8601", "https://cldr.unicode.org", list(draw_dates(recipe.text.made))
    )


def draw_dates(count: int) -> Iterator[tuple[str, str]]:
    """Draw different days, each in a random format, and their ISO dates; the same ones every time."""
    random = np.random.default_rng(0)
    languages = list(DATES)
    for offset in random.permutation(DAYS)[:count]:
        day = FIRST + timedelta(days=int(offset))
        language = languages[random.integers(len(languages))]
        yield format_date(day, language, int(random.integers(len(DATES[language]["forms"])))), day.isoformat()


def format_date(day: date, language: str, form: int) -> str:
    """Write a day in one of the formats of a language."""
    words = DATES[language]
    month, weekday = words["months"][day.month - 1], words["weekdays"][day.weekday()]
    return words["forms"][form].format(day=day.day, number=day.month, year=day.year, month=month, weekday=weekday)
