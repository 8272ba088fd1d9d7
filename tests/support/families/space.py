"""Legal configs of each official architecture: axes of alternatives, of which a test draws one each.

What is drawn is legal for the official class and convertible, so nothing is filtered away.
"""

from typing import Any

from hypothesis import strategies as st

import tables

Fields = dict[str, Any]
Axis = list[Fields]


def crossed(*axes: Axis) -> Axis:
    """A few alternatives that take one of each axis, in turn."""
    count = max(map(len, axes))
    turns = [[axis[(number + shift) % len(axis)] for shift, axis in enumerate(axes)] for number in range(count)]
    return [{name: value for fields in turn for name, value in fields.items()} for turn in turns]


def axes(row: Any) -> list[Axis]:
    """The axes of a row of the table, or of all rows of a list."""
    if isinstance(row, list):
        return [axis for part in row for axis in axes(part)]
    if "either" in row:
        return [row["either"]]
    if "part" in row:
        return [[{row["part"]: {**row["fixed"], **fields}} for fields in crossed(*axes(row["axes"]))]]
    return [[{name: value} for value in values] for name, values in row.items()]


SPACES = {model_type: axes(row) for model_type, row in tables.beside(__file__)["spaces"].items()}


def configs(model_type: str) -> st.SearchStrategy[Fields]:
    """One alternative of each axis of an architecture."""
    drawn = st.tuples(*map(st.sampled_from, SPACES[model_type]))
    return drawn.map(lambda turn: {name: value for fields in turn for name, value in fields.items()})
