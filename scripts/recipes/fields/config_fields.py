"""The fields of configs as help and hints need them, read from their source: importing the configs takes seconds."""

import ast
from functools import cache
from pathlib import Path

from qkv.scripts.recipes.fields.recipe_fields import explained

CONFIGURATION = Path(__file__).parents[3] / "configuration"


@cache
def config_classes() -> dict[str, ast.ClassDef]:
    """Return every class of the configs' source by name."""
    return {
        node.name: node
        for path in sorted(CONFIGURATION.glob("configuration_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }


def declared(node: ast.ClassDef) -> list[str]:
    """Return the fields that a class declares itself."""
    statements = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return [ast.unparse(one.target) for one in statements if "ClassVar" not in ast.unparse(one.annotation)]


@cache
def config_fields() -> frozenset[str]:
    """Return the names of all fields of all configs."""
    return frozenset(name for node in config_classes().values() for name in declared(node))


def config_of(architecture: str) -> str | None:
    """Return the config class of an architecture, by its name."""
    names = [name for name in config_classes() if architecture.startswith(name.removesuffix("Config"))]
    return max(names, key=len, default=None)


def meanings(name: str | None) -> dict[str, str]:
    """Return what each field of a config class means, inherited ones among them."""
    node = config_classes().get(name or "")
    if node is None:
        return {}
    bases: dict[str, str] = {}
    for base in reversed(node.bases):
        bases |= meanings(ast.unparse(base))
    return bases | {field: meaning for field, (_, meaning) in explained(ast.get_docstring(node)).items()}
