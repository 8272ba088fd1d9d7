"""The help of a recipe: its fields with values, defaults, units and meanings, grouped as the schema has them."""

import json
import shutil
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from qkv.scripts.recipes.fields.config_fields import config_of, meanings
from qkv.scripts.recipes.fields.recipe_fields import RecipeField, recipe_fields
from qkv.scripts.recipes.keys import flat
from qkv.scripts.recipes.schema import Fields, Recipe

COLUMN = 28
LONGEST = 40
# Fields that hold fields of other schemas, by name.
OPEN = ("model", "stock")


def recipe_help(recipe: Recipe, typed: str) -> str:
    """Return the help of a recipe, as wide as the terminal; `typed` is the command with its recipe."""
    width = min(shutil.get_terminal_size().columns, 100)
    values = flat(recipe)
    parts: dict[type, list[str]] = {}
    for field in recipe_fields().values():
        lines = parts.setdefault(field.part, ["", *wrap((field.part.__doc__ or "").splitlines()[0], width)])
        if field.key in OPEN:
            lines += opened(field, values[field.key], recipe, width)
        elif not isinstance(value := value_of(values, field.key), dict):
            lines += entry(f"{field.key}={spelled(value)}", f"{field.meaning} {aside(field, value)}", width)
    head = [f"usage: {typed} [key=value ...]", *([""] if recipe.title else []), *wrap(recipe.title, width)]
    example = ["", f"example: {typed} learning_rate=1e-3 out=runs/mine"]
    return "\n".join([*head, *(line for lines in parts.values() for line in lines), *example])


def opened(field: RecipeField, values: Fields, recipe: Recipe, width: int) -> Iterator[str]:
    """Yield the lines of a field of fields."""
    yield from entry(f"{field.key}.NAME=VALUE", field.meaning, width)
    known = meanings(config_of(recipe.model.architecture) or "") if field.key == "model" else {}
    for name, value in values.items():
        yield from entry(f"{field.key}.{name}={spelled(value)}", known.get(name, ""), width)


def value_of(values: Fields, key: str) -> Any:
    """Return the value of a dotted key."""
    for name in key.split("."):
        values = values[name]
    return values


def aside(field: RecipeField, value: Any) -> str:
    """Return type, unit and default in brackets; a default that is the value is not repeated."""
    told = not field.required and field.default not in ("", value)
    return f"({field.takes}; default {spelled(field.default)})" if told else f"({field.takes})"


def spelled(value: Any) -> str:
    """Return a value as it is typed, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def entry(head: str, text: str, width: int) -> list[str]:
    """Return the lines of an entry: what is typed at the left, what it means at the right."""
    lines = wrap(text, width - COLUMN) or [""]
    if len(head) <= COLUMN - 4:
        return [f"  {head:{COLUMN - 2}}{lines[0]}".rstrip(), *(" " * COLUMN + line for line in lines[1:])]
    return [f"  {head}", *(" " * COLUMN + line for line in lines if line)]
