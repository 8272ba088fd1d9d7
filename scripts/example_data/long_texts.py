"""Texts of thousands of words that only far words explain: nested lists, pairs that come again, a table in front."""

from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import TypeVar

import numpy as np

from qkv.scripts.data.corpus import TEST_EVERY, Corpus
from qkv.scripts.data.tagged_words import TaggedWords
from qkv.scripts.recipes.schema import Recipe

LISTOPS = "https://arxiv.org/abs/2011.04006"
RECALL = "https://arxiv.org/abs/2312.04927"
OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
# Of lists: how deep they are at most and down to where all arguments are lists, which else are by that chance.
DEPTH, FILLED, NESTED = 10, 3, 0.25
ARGUMENTS, SHORTEST = 10, 4
VALUES = 16
# The shortest text of training that begins with a table, in lengths of the table.
SHORTEST_TEXT = 2
Item = TypeVar("Item")


def listops(recipe: Recipe) -> Corpus:
    """Make nested lists of operations on digits, whose class is their result.

    Lists have up to `text.length` words, less the two of a tokenizer's template, and mostly at least a quarter of it.

    Source: Tay et al. 2021, Long Range Arena, §2.2.1, https://arxiv.org/abs/2011.04006
    """
    random, most = Random(0), recipe.text.length - 2
    made: dict[str, int] = {}
    while len(made) < recipe.text.made:
        words, result = draw_list(random, random.randint(most // 4, most))
        made[" ".join(words)] = result
    return Corpus(
        "listops",
        "nested lists of MAX, MIN, MED and SM over digits",
        LISTOPS,
        texts=split(list(made)),
        labels=split(list(made.values())),
        names=[str(digit) for digit in range(10)],
    )


def draw_list(random: Random, most: int, depth: int = 1) -> tuple[list[str], int]:
    """Draw a list of at most so many words, and return them and the result."""
    name = random.choice([*OPERATORS])
    words, values = [name], list[int]()
    for _ in range(random.randint(2, ARGUMENTS)):
        room = most - len(words) - 1
        if room < 1:
            break
        if depth < DEPTH and room >= SHORTEST and (depth < FILLED or random.random() < NESTED):
            more, value = draw_list(random, room, depth + 1)
        else:
            value = random.randrange(10)
            more = [str(value)]
        words += more
        values.append(value)
    return [*words, "]"], OPERATORS[name](values)


def recall(recipe: Recipe) -> Corpus:
    """Make texts of pairs of a key and its value; each text gives `text.symbols` keys values of its own.

    Which key comes next is chance, and so is its value when it comes first; after that the text has said it, hundreds
    of words before. What nobody can know of a word is `unknown` nats in the mean.

    Source: Arora et al. 2024, Zoology, §3, https://arxiv.org/abs/2312.04927, with keys that come again at random
    """
    random, pairs = np.random.default_rng(0), (recipe.text.length - 2) // 2
    texts = [" ".join(draw_pairs(random, recipe.text.symbols, pairs)) for _ in range(recipe.text.made)]
    return Corpus("recall", f"pairs of {recipe.text.symbols} keys and their values", RECALL, texts=split(texts))


def draw_pairs(random: np.random.Generator, keys: int, pairs: int) -> list[str]:
    """Draw keys, each followed by the value that it has in this text."""
    values = random.integers(VALUES, size=keys)
    return [word for key in random.integers(keys, size=pairs) for word in (f"k{key}", f"v{values[key]}")]


def associative_recall(recipe: Recipe) -> TaggedWords:
    """Make texts of a table of `text.symbols` keys and their values, then keys, each with its value as its tag.

    No word but those of the table tells a value: what is read of it has to come all the way. Tests have `text.length`
    words, less the two of a tokenizer's template. Texts of training are shorter, evenly in the logarithm of their
    length, for a table is learned to be read where it is near.

    Source: Arora et al. 2024, Zoology, §3 (multi-query associative recall), https://arxiv.org/abs/2312.04927, with
        values as tags
    """
    random, keys, most = np.random.default_rng(0), recipe.text.symbols, recipe.text.length - 2
    least = min(SHORTEST_TEXT * keys, most)
    if least <= keys:
        raise ValueError(
            f"text.length={recipe.text.length} has no room behind a table of text.symbols={keys} keys; take at least "
            f"{SHORTEST_TEXT * keys + 2}"
        )
    lengths = np.exp(random.uniform(np.log(least), np.log(most + 1), size=recipe.text.made)).astype(int)
    lengths[::TEST_EVERY] = most
    rows = [draw_table_and_keys(random, keys, length - keys) for length in lengths]
    title = f"tables of {keys} keys and their values, and keys to look up"
    words, tags = (split(list(column)) for column in zip(*rows, strict=True))
    return TaggedWords("associative-recall", title, RECALL, words, tags, [f"v{value}" for value in range(VALUES)])


def draw_table_and_keys(random: np.random.Generator, keys: int, count: int) -> tuple[list[str], list[int]]:
    """Draw a table of all keys in any order, and `count` keys; return the words, and the value of each."""
    values, order = random.integers(VALUES, size=keys), random.permutation(keys)
    asked = random.integers(keys, size=count)
    words = [*(f"k{key}=v{values[key]}" for key in order), *(f"k{key}" for key in asked)]
    return words, values[np.concatenate((order, asked))].tolist()


def unknown(keys: int, pairs: int) -> float:
    """Return the nats of a word of `recall` that nobody can know, in the mean over its texts."""
    first = keys * (1 - (1 - 1 / keys) ** pairs)  # keys that come at all
    return float((pairs * np.log(keys) + first * np.log(VALUES)) / (2 * pairs))


def split(items: Sequence[Item]) -> dict[str, list[Item]]:
    """Keep every tenth item for the test."""
    train = [item for place, item in enumerate(items) if place % TEST_EVERY]
    return {"train": train, "test": list(items[::TEST_EVERY])}
