"""The help of a recipe: its values, with the meanings in the docstrings of the schema and the configs."""

import shutil
from collections.abc import Iterator
from textwrap import shorten, wrap
from typing import Any

import yaml

from qkv.scripts.recipes.fields.keys import config_meanings, flat, recipe_fields
from qkv.scripts.recipes.schema import Fields, Recipe

COLUMN = 28


def recipe_help(recipe: Recipe, typed: str) -> str:
    """Return the help of a recipe, as wide as the terminal; `typed` is the command with its recipe."""
    width, values, part = min(shutil.get_terminal_size().columns, 100), flat(recipe), None
    lines = [f"usage: {typed} [key=value ...]", "", *wrap(recipe.title, width)]
    for key, field in recipe_fields().items():
        if field.part is not part:
            part = field.part
            lines += ["", *wrap((part.__doc__ or "").splitlines()[0], width)]
        group, _, name = key.rpartition(".")
        value = values[group][name] if group else values[key]
        if key == "model":
            lines += config_entries("model.", value, config_meanings(recipe.model.architecture), width)
        elif not isinstance(value, dict):
            lines += entry(key, value, f"{field.meaning} ({field.unit})" if field.unit else field.meaning, width)
    return "\n".join([*lines, "", f"example: {typed} learning_rate=1e-3 out=runs/mine"])


def config_entries(prefix: str, values: Fields, meanings: dict[str, str], width: int) -> Iterator[str]:
    """Yield the lines of a config's fields, and of the fields of its parts."""
    for name, value in values.items():
        if isinstance(value, dict) and name.endswith("_config"):
            yield from config_entries(f"{prefix}{name}.", value, meanings, width)
        else:
            yield from entry(prefix + name, value, meanings.get(name, ""), width)


def entry(key: str, value: Any, meaning: str, width: int) -> list[str]:
    """Return the lines of a field: its value, cut where it is long, on the left, its meaning on the right."""
    typed = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n")
    head = f"{key}={shorten(typed, 40, placeholder='…')}"
    lines = [" " * COLUMN + line for line in wrap(meaning, width - COLUMN)]
    if len(head) <= COLUMN - 4 and lines:
        return [f"  {head:{COLUMN - 2}}{lines[0].strip()}", *lines[1:]]
    return [f"  {head}", *lines]
