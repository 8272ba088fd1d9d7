"""Resolve the keys that people type: names of transformers' Trainer and short names, and fields without their group."""

from collections.abc import Sequence

from qkv.scripts.common.files import table
from qkv.scripts.common.phases import say_once
from qkv.scripts.common.words import nearest
from qkv.scripts.recipes.fields.keys import config_meanings, recipe_fields

ALIASES: dict[str, str] = table(__file__)
SIMILAR = 0.76  # least similarity, from 0 to 1, of a suggested key


def resolve(words: Sequence[str]) -> list[str]:
    """Replace aliases in `key=value` words by the keys of recipes, and print each replacement."""
    resolved: list[str] = []
    for typed in words:
        key, equals, value = typed.partition("=")
        named = [f"{field}={value}" for field in fields_of(key)] if key and equals else [typed]
        if named != [typed.replace("-", "_", key.count("-"))]:
            say_once(f"{typed} is {' '.join(named)}")
        resolved += named
    return resolved


def fields_of(typed: str) -> list[str]:
    """Return the fields that a key stands for; ValueError, with the nearest key, where it stands for none."""
    key = typed.replace("-", "_")
    known = recipe_fields()
    if key.partition(".")[0] in known:
        return [key]
    if key in ALIASES:
        return ALIASES[key].split()
    grouped = [f"{group}.{key}" for group in ("text", "augment") if f"{group}.{key}" in known]
    if grouped or key in config_meanings():
        return grouped or [f"model.{key}"]
    names = {field.rpartition(".")[2]: field for field in known} | {name: f"model.{name}" for name in config_meanings()}
    close = nearest(key, list(names | ALIASES), SIMILAR)
    hint = f"did you mean {(ALIASES | names)[close]!r}?" if close else "qkv train RECIPE --help lists the fields"
    raise ValueError(f"unknown key {typed!r}; {hint}")
