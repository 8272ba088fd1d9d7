"""How are numbers called? In English and in French, by the rules of both grammars, up to 999,999."""

import math

import numpy as np

from qkv.scripts.data.corpus import Corpus, pairs
from qkv.scripts.recipes.schema import Recipe

LIMIT = 1_000_000
RULES = "https://en.wikipedia.org/wiki/French_numerals"
ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
ENGLISH_TENS = ". . twenty thirty forty fifty sixty seventy eighty ninety".split()
FRENCH = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
).split()
FRENCH_TENS = ". . vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()


def numbers(recipe: Recipe) -> Corpus:
    """English number words and the French for them: different numbers, as many with three digits as with six."""
    count = recipe.text.made
    if count > LIMIT // 20:
        raise ValueError(f"text.made={count} is more than {LIMIT // 20} different numbers; make fewer")
    random, found = np.random.default_rng(0), dict[int, None]()
    while len(found) < count:
        found[int(math.exp(random.uniform(0, math.log(LIMIT)))) - 1] = None
    written = [(english(number), french(number)) for number in found]
    return pairs("numbers", "English and French number words", RULES, written)


def english(number: int) -> str:
    """A number below a million in English words."""
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return ENGLISH_TENS[tens] + (f"-{ENGLISH[ones]}" if ones else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    many, rest = divmod(number, size)
    joint = " and " if 0 < rest < 100 else " "
    return f"{english(many)} {name}" + (joint + english(rest) if rest else "")


def french(number: int) -> str:
    """A number below a million in French words, spelt as before 1990."""
    if number < 100:
        return french_tens(number)
    if number < 1000:
        many, rest = divmod(number, 100)
        hundred = "cent" if many == 1 else f"{FRENCH[many]} cent"
        return f"{hundred} {french_tens(rest)}" if rest else hundred + "s" * (many > 1)
    many, rest = divmod(number, 1000)
    # Before mille, which is a number itself, vingt and cent take no plural.
    thousand = "mille" if many == 1 else f"{french(many).removesuffix('s') if plural(many) else french(many)} mille"
    return f"{thousand} {french(rest)}" if rest else thousand


def plural(number: int) -> bool:
    """Whether the French for a number below 1000 ends in the plural of vingt or cent."""
    return number % 100 == 80 or (number % 100 == 0 and number > 100)


def french_tens(number: int) -> str:
    """A number below a hundred in French: 70 and 90 count on from 60 and 80."""
    if number < 20:
        return FRENCH[number]
    tens, ones = divmod(number, 10)
    if tens in (7, 9):
        ones += 10
    if ones == 0:
        return FRENCH_TENS[tens] + "s" * (tens == 8)
    joint = " et " if ones in (1, 11) and tens < 8 else "-"
    return FRENCH_TENS[tens] + joint + FRENCH[ones]
