"""Docstrings: every public class has one, every variant names its source and shapes."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = [path for folder in ("configuration", "modeling") for path in sorted((ROOT / folder).glob("*.py"))]
# Parts hold the tables of variants; families and conversion hold tables of other things.
PARTS = [
    path.stem
    for path in CORE
    if path.parent.name == "modeling" and not path.stem.startswith(("_", "modeling_", "conversion"))
]
LABELS = ("Source:", "Shapes:")


def public_classes(path: Path) -> Iterator[ast.ClassDef]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def variants(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Our own classes and functions in the module's public UPPERCASE dicts, by `TABLE[word]`."""
    for name, table in vars(module).items():
        if name.isupper() and not name.startswith("_") and isinstance(table, dict):
            for word, value in table.items():
                owner = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
                if owner.__module__.startswith("qkv."):
                    yield f"{module.__name__}.{name}[{word!r}]", owner


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_public_classes_have_docstrings(path: Path) -> None:
    assert [node.name for node in public_classes(path) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("stem", PARTS)
def test_variants_name_source_and_shapes(stem: str) -> None:
    found = variants(importlib.import_module(f"qkv.modeling.{stem}"))
    missing = {place: [label for label in LABELS if label not in (value.__doc__ or "")] for place, value in found}
    assert {place: labels for place, labels in missing.items() if labels} == {}


def test_the_tables_of_variants_are_seen() -> None:
    position = importlib.import_module("qkv.modeling.position")
    assert len(list(variants(position))) == len(position.POSITIONS)
