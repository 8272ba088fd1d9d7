"""The keys of recipes: how files and the command line name the fields of the schema."""

from dataclasses import Field, asdict, fields
from typing import Any, get_type_hints

from qkv.scripts.recipes.schema import (
    Augmentation,
    Card,
    Compute,
    Data,
    Fields,
    Model,
    Optimization,
    Output,
    Recipe,
    Schedule,
    Text,
)

# The parts of the tree whose fields are written under their own names, and those that files write as groups.
PARTS: dict[str, type] = {
    "data": Data, "model": Model, "optimization": Optimization, "schedule": Schedule, "compute": Compute,
    "output": Output,
}  # fmt: skip
GROUPS: dict[str, type] = {"text": Text, "augment": Augmentation, "card": Card}


def key_of(known: Field[Any]) -> str:
    """Return the name of a field in files."""
    key: str = known.metadata.get("key", known.name)
    return key


def types_of(kind: type) -> dict[str, Any]:
    """Return {name in files: type} of the fields of a part."""
    types = get_type_hints(kind, include_extras=True)
    return {key_of(known): types[known.name] for known in fields(kind)}


def merged(fields: Fields, more: Fields) -> Fields:
    """Merge nested fields, those of `more` over those of `fields`."""
    parts = {name: merged(fields[name], value) for name, value in more.items() if isinstance(fields.get(name), dict)}
    return {**fields, **more, **parts}


def known_types() -> dict[str, Any]:
    """Return {name in files: type} of everything that a recipe says."""
    own = {name: kind for name, kind in types_of(Recipe).items() if name not in PARTS}
    return own | {key: kind for part in PARTS.values() for key, kind in types_of(part).items()}


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
