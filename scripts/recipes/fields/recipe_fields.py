"""The fields of recipes as people read them: type, default, unit and meaning, from the docstrings of the schema."""

import re
from dataclasses import MISSING, dataclass, fields
from functools import cache
from inspect import cleandoc
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from qkv.scripts.common.words import either
from qkv.scripts.recipes.keys import GROUPS, PARTS, key_of, types_of
from qkv.scripts.recipes.schema import Recipe

ENTRY = re.compile(r"(\w+)(?: \(([^)]*)\))?: (.*)")
KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text", dict: "group of fields"}


@dataclass(frozen=True)
class RecipeField:
    """A field of a recipe: its key in files, the part of the schema it stands in, what it takes and what it means."""

    key: str
    part: type
    kind: Any
    default: Any
    unit: str
    meaning: str

    @property
    def required(self) -> bool:
        """True where every recipe has to say it."""
        return self.default is MISSING

    @property
    def words(self) -> tuple[str, ...]:
        """The words that it takes; none for numbers and texts."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def takes(self) -> str:
        """Its type and unit, as one says them."""
        return f"{self.type_name}, {self.unit}" if self.unit else self.type_name

    @property
    def type_name(self) -> str:
        """Its type as one says it."""
        if self.words:
            return either(self.words)
        kind, optional = self.kind, ""
        if NoneType in get_args(kind):
            kind, optional = get_args(kind)[0], " or null"
        kind = kind.__origin__ if get_origin(kind) is Annotated else get_origin(kind) or kind
        return KINDS.get(kind, "group of fields") + optional


def explained(docstring: str | None) -> dict[str, tuple[str, str]]:
    """Return {field: (unit, meaning)} of the `Args:` in the docstring of a class."""
    entries: dict[str, tuple[str, str]] = {}
    for entry in re.split(r"\n(?! )", cleandoc(cleandoc(docstring or "").partition("Args:\n")[2])):
        if match := ENTRY.fullmatch(" ".join(entry.split())):
            entries[match[1]] = match[2] or "", match[3]
    return entries


def part_fields(part: type, prefix: str = "") -> list[RecipeField]:
    """Return the fields of a part, and after one that files write as a group those of the group."""
    listed = []
    types, entries = types_of(part), explained(part.__doc__)
    for known in fields(part):
        key = key_of(known)
        if key in PARTS and part is Recipe:
            continue
        kind, default = types[key], known.default
        if known.default_factory is not MISSING:
            default = known.default_factory()
        listed.append(RecipeField(prefix + key, part, kind, default, *entries.get(key, ("", ""))))
        if key in GROUPS:
            listed += part_fields(GROUPS[key], f"{key}.")
    return listed


@cache
def recipe_fields() -> dict[str, RecipeField]:
    """Return every field of a recipe by its key."""
    listed = [field for part in (*PARTS.values(), Recipe) for field in part_fields(part)]
    return {field.key: field for field in listed}


def key_value(key: str) -> str:
    """Return `key=value` with the default of a field, as an example; nothing for one without such a default."""
    field = recipe_fields().get(key)
    plain = field and isinstance(field.default, str | int | float) and str(field.default)
    return f"{key}={str(field.default).lower() if field.kind is bool else plain}" if field and plain else ""
