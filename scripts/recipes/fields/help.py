"""The help of a recipe: its fields with values, defaults, units and meanings, grouped as the schema has them."""

import json
import shutil
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from qkv.scripts.recipes.fields.config_fields import config_of, fields_of_config, parts
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
    groups: dict[type, list[str]] = {}
    for field in recipe_fields().values():
        lines = groups.setdefault(field.part, ["", *wrap((field.part.__doc__ or "").splitlines()[0], width)])
        if field.key in OPEN:
            lines += opened(field, values[field.key], recipe, width)
        elif not isinstance(value := value_of(values, field.key), dict):
            default = value if field.required else field.default
            lines += entry(
                f"{field.key}={spelled(value)}", f"{field.meaning} {aside(field.takes, default, value)}", width
            )
    head = [f"usage: {typed} [key=value ...]", *([""] if recipe.title else []), *wrap(recipe.title, width)]
    example = ["", f"example: {typed} learning_rate=1e-3 out=runs/mine"]
    return "\n".join([*head, *(line for lines in groups.values() for line in lines), *example])


def opened(field: RecipeField, values: Fields, recipe: Recipe, width: int) -> Iterator[str]:
    """Yield the lines of a field of fields."""
    yield from entry(f"{field.key}.NAME=VALUE", field.meaning, width)
    config = config_of(recipe.model.architecture) if field.key == "model" else None
    yield from lines_of_config(f"{field.key}.", values, config or "", width)


def lines_of_config(prefix: str, values: Fields, config: str, width: int) -> Iterator[str]:
    """Yield the lines of a config's fields, those of its parts and those that its parts share among them."""
    own, inner = fields_of_config(config), parts(config)
    shared = {name: field for part in inner.values() for name, field in fields_of_config(part).items()}
    for name, value in values.items():
        if name in inner and isinstance(value, dict):
            yield from lines_of_config(f"{prefix}{name}.", value, inner[name], width)
            continue
        text = ""
        if field := own.get(name) or shared.get(name):
            text = f"{field.meaning} {aside(field.takes, field.default if name in own else value, value)}"
        yield from entry(f"{prefix}{name}={spelled(value)}", text, width)


def value_of(values: Fields, key: str) -> Any:
    """Return the value of a dotted key."""
    for name in key.split("."):
        values = values[name]
    return values


def aside(takes: str, default: Any, value: Any) -> str:
    """Return what a field takes and its default in brackets; a default that is empty or the value is not told."""
    return f"({takes})" if default in ("", value) else f"({takes}; default {spelled(default)})"


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
