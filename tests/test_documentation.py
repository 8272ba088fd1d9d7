"""Docstrings: every public class has one, functions say what they do, every variant names its source and shapes."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from checkout import ROOT, python_files

CORE = python_files("configuration", "modeling", apart=frozenset({"conversion", "qkv"}))
# Parts hold the tables of variants; families hold tables of other things.
PARTS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
    for path in CORE
    if path.relative_to(ROOT).parts[0] == "modeling" and not path.stem.startswith(("_", "modeling_"))
]
LABELS = ("Source:", "Shapes:")
# What a docstring begins with that describes a function instead of saying what it does; ruff finds "Returns" and such.
DESCRIBING = re.compile(
    r"[^A-Z]|(A|An|All|Any|Each|Every|Exactly|How|No|None|One|The|Their|This|True|What|Whether)\b|\w+ed\b(?<!Embed)(?<!Seed)(?<!Need)(?<!Feed)"
)


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


def is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)


@pytest.mark.parametrize("folder", ["configuration", "modeling", "scripts"])
def test_functions_say_what_they_do(folder: str) -> None:
    found = {}
    for path in python_files(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not is_property(node):
                line = (ast.get_docstring(node) or "Say nothing").splitlines()[0]
                if DESCRIBING.match(line):
                    found[f"{path.relative_to(ROOT)}:{node.lineno}"] = line
    assert found == {}


@pytest.mark.parametrize("module", PARTS)
def test_variants_name_source_and_shapes(module: str) -> None:
    found = variants(importlib.import_module(f"qkv.modeling.{module}"))
    missing = {place: [label for label in LABELS if label not in (value.__doc__ or "")] for place, value in found}
    assert {place: labels for place, labels in missing.items() if labels} == {}


def test_the_tables_of_variants_are_seen() -> None:
    position = importlib.import_module("qkv.modeling.position")
    assert {f"{position.__name__}.POSITIONS[{word!r}]" for word in position.POSITIONS} <= dict(
        variants(position)
    ).keys()
