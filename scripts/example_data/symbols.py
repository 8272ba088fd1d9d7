"""What is a task that can be solved completely? Random letters, to be written again or backwards."""

import string

import numpy as np

from qkv.scripts.data.corpus import Corpus, pairs
from qkv.scripts.recipes.schema import Recipe

LETTERS = np.array(list(string.ascii_lowercase))
HERE = "https://docs.python.org/3/library/string.html#string.ascii_lowercase"


def copy(recipe: Recipe) -> Corpus:
    """Random letters, each as many as `text.symbols`, and the same once more."""
    count = recipe.text.symbols
    found = [(letters, letters) for letters in drawn(recipe.text.made, count, count)]
    return pairs("copy", f"copies of {count} random letters", HERE, found)


def reverse(recipe: Recipe) -> Corpus:
    """Random letters, between half of `text.symbols` and all of them, and the same from last to first."""
    count = recipe.text.symbols
    found = [(letters, letters[::-1]) for letters in drawn(recipe.text.made, (count + 1) // 2, count)]
    return pairs("reverse", f"reversals of up to {count} random letters", HERE, found)


def drawn(count: int, shortest: int, longest: int) -> list[str]:
    """That many different texts of random letters, the same ones every time; ValueError where there are not so many."""
    if longest < 9 and count > len(LETTERS) ** longest // 2:
        raise ValueError(f"text.made={count} different texts of {longest} letters are too many; make text.symbols more")
    random, found = np.random.default_rng(0), dict[str, None]()
    while len(found) < count:
        length = random.integers(shortest, longest + 1)
        found["".join(LETTERS[random.integers(0, len(LETTERS), length)])] = None
    return list(found)
