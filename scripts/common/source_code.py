"""Read classes, functions and tables of the package from their source: importing them takes seconds."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
Definition = ast.ClassDef | ast.FunctionDef


@cache
def modules(pattern: str) -> dict[str, ast.Module]:
    """Parse the modules of a glob in the package, such as `modeling/position/*.py`, by their names."""
    paths = sorted(PACKAGE.glob(pattern))
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def definitions(pattern: str) -> dict[str, Definition]:
    """Return the classes and functions of these modules by name."""
    nodes = (node for module in modules(pattern).values() for node in module.body)
    return {node.name: node for node in nodes if isinstance(node, Definition)}


@cache
def assigned(pattern: str) -> dict[str, ast.expr]:
    """Return what these modules assign to their names."""
    values: dict[str, ast.expr] = {}
    for module in modules(pattern).values():
        for node in module.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                values[ast.unparse(target)] = node.value
    return values


def rows(node: ast.expr) -> dict[str, ast.expr]:
    """Return the rows of a dict by their words; a table inside it has none of its own."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {ast.literal_eval(key): value for key, value in pairs if key}


def table(pattern: str, name: str) -> dict[str, ast.expr]:
    """Return the rows of a table by word, those of the tables inside it (`**OTHERS`) among them."""
    node = assigned(pattern)[name]
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    inner = [table(pattern, ast.unparse(value)) for key, value in pairs if key is None]
    return rows(node) | {word: value for one in inner for word, value in one.items()}


def docstring(node: Definition | None) -> str:
    """Return the docstring of a definition; nothing of none."""
    return (node and ast.get_docstring(node)) or ""
