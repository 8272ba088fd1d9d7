"""Classes, functions and tables read from source: those that are imported."""

import inspect

import pytest

from qkv.configuration import presets
from qkv.modeling import position
from qkv.scripts.common.source_code import definitions, docstring, table
from qkv.scripts.tasks.metrics import METRICS


@pytest.mark.parametrize(
    ("pattern", "name", "rows"),
    [
        ("modeling/position/*.py", "POSITIONS", position.POSITIONS),  # a table made of others
        ("scripts/tasks/metrics.py", "METRICS", METRICS),
    ],
)
def test_a_table_has_its_rows(pattern: str, name: str, rows: dict[str, type]) -> None:
    read = {word: node.id for word, node in table(pattern, name).items()}
    assert read == {word: value.__name__ for word, value in rows.items()}


def test_a_definition_has_its_docstring() -> None:
    read = {name: docstring(node) for name, node in definitions("configuration/presets.py").items()}
    assert read.keys() > set(presets.names())
    assert all(read[name] == inspect.getdoc(getattr(presets, name)) for name in presets.names())
    assert docstring(None) == ""
