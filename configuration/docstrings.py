"""Docstrings of configs: each class explains its own fields, and a class lists all it has, with type and default."""

import textwrap
from dataclasses import MISSING, Field, fields
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

# {class: {field: explanation}} of the fields that the class itself explains.
EXPLAINED: dict[type, dict[str, str]] = {}
WIDTH = 116


def spell_type(annotation: object) -> str:
    """Return a type as one says it: `int or None`."""
    if get_origin(annotation) in (Union, UnionType):
        *first, last = map(spell_type, get_args(annotation))
        return f"{', '.join(first)} or {last}"
    if get_args(annotation):
        return str(annotation).replace("typing.", "")
    return "None" if annotation is NoneType else getattr(annotation, "__name__", str(annotation))


def list_fields(config_class: type[Any]) -> None:
    """Complete the docstring of a config class with the fields it inherits, and each field with type and default.

    What stands under `Args:` in a class is `field: explanation`; a subclass may explain a field again.
    """
    summary, _, own = cleandoc(config_class.__doc__ or "").partition("\nArgs:\n")
    EXPLAINED[config_class] = explanations(own)
    explained: dict[str, str] = {}
    for base in config_class.__mro__:
        explained = {
            **explained,
            **{name: text for name, text in EXPLAINED.get(base, {}).items() if name not in explained},
        }
    declared = {field.name: field for field in fields(config_class)}
    entries = [entry(declared[name], text) for name, text in explained.items() if name in declared]
    config_class.__doc__ = "\n".join([summary.rstrip(), *["\nArgs:"] * bool(entries), *entries])


def explanations(section: str) -> dict[str, str]:
    """Return {field: explanation} of an `Args:` section without its indentation."""
    explained: dict[str, str] = {}
    for line in textwrap.dedent(section).splitlines():
        if line and not line[0].isspace():
            name, _, explanation = line.partition(": ")
            explained[name] = explanation
        elif line:
            explained[name] += f" {line.strip()}"
    return explained


def entry(field: "Field[object]", text: str) -> str:
    """Return the lines that explain one field."""
    default = field.default if field.default_factory is MISSING else field.default_factory()
    line = f"{field.name} ({spell_type(field.type)}, defaults to {default!r}): {text}"
    return textwrap.fill(line, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False)
