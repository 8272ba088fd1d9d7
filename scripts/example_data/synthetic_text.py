"""Synthetic texts and their targets: copies, reversals, and number words in French."""

import math
import string

import numpy as np

from qkv.scripts.common.resources import table
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.recipes.schema import Recipe

LETTERS = np.array(list(string.ascii_lowercase))
LETTERS_HOME = "https://docs.python.org/3/library/string.html#string.ascii_lowercase"
LIMIT = 1_000_000
RULES = "https://en.wikipedia.org/wiki/French_numerals"
WORDS = table(__file__)


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
    words = WORDS["en"]
    if number < 20:
        return str(words["ones"][number])
    if number < 100:
        tens, ones = divmod(number, 10)
        return words["tens"][tens - 2] + (f"-{words['ones'][ones]}" if ones else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    many, rest = divmod(number, size)
    joint = " and " if 0 < rest < 100 else " "
    return f"{english(many)} {name}" + (joint + english(rest) if rest else "")


def french(number: int) -> str:
    """Spell a number below a million in French, as before 1990: 70 and 90 count on from 60 and 80."""
    words = WORDS["fr"]
    if number < 20:
        return str(words["ones"][number])
    if number < 100:
        tens, ones = divmod(number, 10)
        ones += 10 * (tens in (7, 9))
        joint = " et " if ones in (1, 11) and tens < 8 else "-"
        return words["tens"][tens - 2] + (joint + words["ones"][ones] if ones else "s" * (tens == 8))
    size, name = (100, "cent") if number < 1000 else (1000, "mille")
    many, rest = divmod(number, size)
    spelled = "" if many == 1 else french(many) + " "
    if size == 1000 and (many % 100 == 80 or (many % 100 == 0 and many > 100)):
        spelled = spelled[:-2] + " "  # before mille, which is a number itself, vingt and cent take no plural
    plural = "s" * (size == 100 and many > 1 and not rest)
    return f"{spelled}{name}{plural}" + (f" {french(rest)}" if rest else "")
