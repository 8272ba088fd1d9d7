"""Texts of thousands of words that only far words explain: a table in front, and keys to look up in it."""

from typing import Any

import numpy as np

from qkv.scripts.data.corpus import TEST_EVERY
from qkv.scripts.data.tagged_words import TaggedWords
from qkv.scripts.recipes.schema import Recipe

HOME = "https://arxiv.org/abs/2312.04927"
VALUES = 16
SHORTEST = 2  # lengths of the table: the shortest text of training that begins with one


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
    return TaggedWords("associative-recall", title, HOME, words, tags, [f"v{value}" for value in range(VALUES)])


def draw_table_and_keys(random: np.random.Generator, keys: int, count: int) -> tuple[list[str], list[int]]:
    """Draw a table of all keys in any order, and `count` keys; return the words, and the value of each."""
    values, order = random.integers(VALUES, size=keys), random.permutation(keys)
    asked = random.integers(keys, size=count)
    words = [*(f"k{key}=v{values[key]}" for key in order), *(f"k{key}" for key in asked)]
    return words, values[np.concatenate((order, asked))].tolist()
