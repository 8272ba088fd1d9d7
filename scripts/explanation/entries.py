"""An explanation, and the parts of a docstring that go into one."""

import re
from dataclasses import dataclass, field
from functools import cache
from inspect import cleandoc

from qkv.scripts.recipes.keys import flat
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.recipes.schema import Fields, Recipe

LABEL = re.compile(r"\n(?=(?:Acts at|Source|Shapes|Args|Raises|Example): ?)")


@dataclass(frozen=True)
class Entry:
    """An explanation: the names that it goes by, the kind of thing that it explains, and what is said of it."""

    names: tuple[str, ...]
    kind: str
    text: str
    source: str = ""
    example: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return every recipe by name: the quick start's first, those of published sizes last."""
    recipes = {name: load(name) for name in names()}
    return dict(sorted(recipes.items(), key=lambda item: (item[1].model.preset is not None, item[0] != "digits")))


@cache
def values_of_recipes() -> dict[str, Fields]:
    """Return the values of every recipe under their names in files."""
    return {name: flat(recipe) for name, recipe in all_recipes().items()}


def prose(docstring: str) -> str:
    """Return the explanation of a docstring: what stands before its labels."""
    return LABEL.split(cleandoc(docstring))[0].strip()


def source(docstring: str) -> str:
    """Return the source that a docstring names by its label; nothing where it names none."""
    labelled = (part for part in LABEL.split(cleandoc(docstring)) if part.startswith("Source: "))
    return " ".join(next(labelled, "").removeprefix("Source: ").split())
