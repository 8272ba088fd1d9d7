"""Every official class that converts, at a tiny size: the rows of every test that compares with transformers."""

from typing import Any

import tables
from families import inputs
from families.base import Family, Row

TABLES = tables.beside(__file__, "families.yaml")


def family(model_type: str, *, heads: dict[str, str], **fields: Any) -> Family:
    """Make a family of a row of the table, whose heads name their inputs."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Family(model_type, heads={head: getattr(inputs, name) for head, name in heads.items()}, **given)


FAMILIES = {model_type: family(model_type, **fields) for model_type, fields in TABLES["families"].items()}


def variant(architecture: str, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> Row:
    """A class of the architecture of that name at another config."""
    return FAMILIES[architecture].variant(head, name, wrong, **fields)


ROWS = [row for family in FAMILIES.values() for row in family.rows()]
ROWS += [
    Row(FAMILIES[architecture], head, wrong or FAMILIES[architecture].wrong, fields, *options, name=name)
    for architecture, head, name, wrong, fields, *options in TABLES["variants"]
]
# Official classes without a counterpart of ours, and why.
LEFT_OUT: dict[str, str] = {name: reason for reason, names in TABLES["left_out"].items() for name in names}
