"""Synthetic texts: copies, reversals, number words in French, and tables of keys to look up far behind them."""

import math
import string
from typing import Any

import numpy as np

from qkv.scripts.common.files import table
from qkv.scripts.data.corpus import Corpus, paired
from qkv.scripts.data.dialogues import ASSISTANT, TOOLS, Dialogue, Dialogues
from qkv.scripts.data.splits.division import TEST_EVERY
from qkv.scripts.data.text_columns import TaggedWords
from qkv.scripts.recipes.schema import Recipe

LETTERS = np.array(list(string.ascii_lowercase))
LETTERS_HOME = "https://docs.python.org/3/library/string.html#string.ascii_lowercase"
LIMIT = 1_000_000
RULES = "https://en.wikipedia.org/wiki/French_numerals"
RECALL_HOME = "https://arxiv.org/abs/2312.04927"
VALUES = 16
SHORTEST = 2  # lengths of the table: the shortest training text that begins with one
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


def number_dialogues(recipe: Recipe) -> Dialogues:
    """Make dialogues about two numbers in French, whose last question is about the first answer."""
    whole, texts = numbers(recipe), dict[str, list[Dialogue]]()
    for split, words in whole.texts.items():
        pairs, texts[split] = list(zip(words, whole.targets[split], strict=True)), []
        for (one, answer), (other, second) in zip(pairs[:-1:2], pairs[1::2], strict=True):
            said = f"What is {one} in French?", answer, f"And {other}?", second, "What was the first?", answer
            turns = zip(("user", ASSISTANT) * 3, said, strict=True)
            texts[split].append({"messages": [{"role": role, "content": text} for role, text in turns], TOOLS: None})
    return Dialogues("number-dialogues", "dialogues about English and French number words", RULES, texts)


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


def associative_recall(recipe: Recipe) -> TaggedWords:
    """Make texts of a table of `text.symbols` keys and their values, then keys, each with its value as its tag.

    No word but those of the table tells a value: what is read of it has to come all the way. Tests have `text.length`
    words, less the two of a tokenizer's template. Texts of training are shorter, evenly in the logarithm of their
    length, for a table is learned to be read where it is near.

    Source: Arora et al. 2024, Zoology, §3 (multi-query associative recall), https://arxiv.org/abs/2312.04927, with
        values as tags
    """
    random, keys, most = np.random.default_rng(0), recipe.text.symbols, recipe.text.length - 2
    least = min(SHORTEST * keys, most)
    if least <= keys:
        table = f"a table of text.symbols={keys} keys; take at least {SHORTEST * keys + 2}"
        raise ValueError(f"text.length={recipe.text.length} has no room behind {table}")
    lengths = np.exp(random.uniform(np.log(least), np.log(most + 1), size=recipe.text.made)).astype(int)
    lengths[::TEST_EVERY] = most
    rows = [draw_table_and_keys(random, keys, length - keys) for length in lengths]
    train = [row for place, row in enumerate(rows) if place % TEST_EVERY]
    sides: Any = (
        {"train": [row[side] for row in train], "test": [row[side] for row in rows[::TEST_EVERY]]} for side in (0, 1)
    )
    words, tags = sides
    title = f"tables of {keys} keys and their values, and keys to look up"
    return TaggedWords("associative-recall", title, RECALL_HOME, words, tags, [f"v{value}" for value in range(VALUES)])


def draw_table_and_keys(random: np.random.Generator, keys: int, count: int) -> tuple[list[str], list[int]]:
    """Draw a table of all keys in any order, and `count` keys; return the words, and the value of each."""
    values, order = random.integers(VALUES, size=keys), random.permutation(keys)
    asked = random.integers(keys, size=count)
    words = [*(f"k{key}=v{values[key]}" for key in order), *(f"k{key}" for key in asked)]
    return words, values[np.concatenate((order, asked))].tolist()
