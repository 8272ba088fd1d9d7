"""Name the fields of the schema as files and the command line do, and read their meanings from its docstrings."""

import ast
import re
from dataclasses import Field, asdict, fields
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from qkv.scripts.recipes.schema import Augmentation, Card, Fields, Recipe, Text

# Parts of the tree that files write as groups, and parts whose fields files write without the name of the part.
GROUPS: dict[str, type] = {"text": Text, "augment": Augmentation, "card": Card}
HINTS: dict[str, type] = get_type_hints(Recipe)
PARTS = {name: part for name, part in HINTS.items() if hasattr(part, "__dataclass_fields__") and name not in GROUPS}
ENTRY = re.compile(r"(\w+)(?: \((.*?)\))?: (.*)")


class RecipeField(NamedTuple):
    """A field: the part of the schema that declares it, its type, its unit and its meaning."""

    part: type
    kind: Any
    unit: str
    meaning: str


def key_of(known: Field[Any]) -> str:
    """Return the name of a field in files."""
    key: str = known.metadata.get("key", known.name)
    return key


def types_of(kind: type) -> dict[str, Any]:
    """Return {name in files: type} of the fields of a part."""
    types = get_type_hints(kind, include_extras=True)
    return {key_of(known): types[known.name] for known in fields(kind)}


def explained(docstring: str | None) -> dict[str, tuple[str, str]]:
    """Return {field: (unit or type, meaning)} of the `Args:` in the docstring of a class."""
    entries = re.split(r"\n(?! )", cleandoc(cleandoc(docstring or "").partition("Args:\n")[2]))
    matches = (ENTRY.fullmatch(" ".join(entry.split())) for entry in entries)
    return {match[1]: (match[2] or "", match[3]) for match in matches if match}


@cache
def recipe_fields() -> dict[str, RecipeField]:
    """Return every field by its key; fields of a group have its name before theirs, as in `text.length`."""
    parts = [("", part) for part in (*PARTS.values(), Recipe)] + [(f"{key}.", part) for key, part in GROUPS.items()]
    return {
        prefix + key: RecipeField(part, kind, *explained(part.__doc__).get(key, ("", "")))
        for prefix, part in parts
        for key, kind in types_of(part).items()
        if part is not Recipe or key not in PARTS
    }


@cache
def config_meanings(architecture: str = "") -> dict[str, str]:
    """Return {config field: meaning} from the source, for importing the configs takes seconds.

    The class of the architecture, its bases and parts come first, for classes may explain one field differently.
    """
    files = sorted((Path(__file__).parents[3] / "configuration").glob("configuration_*.py"))
    nodes = [node for path in files for node in ast.parse(path.read_text(encoding="utf-8")).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    first = [node for name, node in classes.items() if architecture.startswith(name.removesuffix("Config"))]
    for node in first:
        named = [classes[name] for name in re.findall(r"\w+Config\b", ast.unparse(node)) if name in classes]
        first += [other for other in named if other not in first]
    ordered = reversed([*first, *classes.values()])
    return {name: text for node in ordered for name, (_, text) in explained(ast.get_docstring(node)).items()}


def merged(fields: Fields, more: Fields) -> Fields:
    """Merge nested fields, with the values of `more` over the values of `fields`."""
    parts = {name: merged(fields[name], value) for name, value in more.items() if isinstance(fields.get(name), dict)}
    return {**fields, **more, **parts}


def tree(values: Fields) -> Recipe:
    """Make a recipe of checked values under their names in files."""
    parts = {
        name: part(**{known.name: values[key] for known in fields(part) if (key := key_of(known)) in values})
        for name, part in PARTS.items()
    }
    own = {known.name: values[known.name] for known in fields(Recipe) if known.name in values.keys() - PARTS.keys()}
    return Recipe(**own, **parts)


def flat(recipe: Recipe) -> Fields:
    """Return the values of a recipe under their names in files, as records keep them."""
    values = asdict(recipe)
    for name, part in PARTS.items():
        inner = values.pop(name)
        values |= {key_of(known): inner[known.name] for known in fields(part)}
    return values
