"""Join the modules of a folder into one text with the definitions that a list of classes reaches, and no others."""

import ast
import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any

LEGEND = re.compile(r"^Shapes: (.*?)\.?$", re.MULTILINE)
LINE = 120


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top level, with the blank lines and comments above it, and the names it defines and reads."""

    text: str
    node: ast.stmt
    defined: frozenset[str]
    read: frozenset[str]


@cache
def statement(text: str) -> Statement:
    """Parse a statement; cached, because configs share most statements."""
    (node,) = ast.parse(text).body
    return Statement(text, node, frozenset(defined(node)), frozenset(names_in(node)))


@cache
def read_module(path: Path) -> tuple[str, list[Any], list[Statement]]:
    """Split a file into its docstring, its imports and its other statements."""
    text = path.read_text(encoding="utf-8")
    lines, tree = text.splitlines(keepends=True), ast.parse(text)
    docstring, end = ast.get_docstring(tree) or "", 0
    imports: list[Any] = []
    body: list[Statement] = []
    for node in tree.body:
        is_of_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        inner = node.body if isinstance(node, ast.If) and is_of_types else [node]
        if all(isinstance(each, ast.Import | ast.ImportFrom) for each in inner):
            imports += inner
        elif node is not tree.body[0] or not docstring:
            source = "".join(lines[end : node.end_lineno])
            body.append(statement(source if body else "\n\n" + source.lstrip("\n")))
        end = node.end_lineno or end
    return docstring, imports, body


class Joined:
    """Modules of one folder of a package, and of the folders in it, in one namespace."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.body: list[Statement] = []
        self.imports: list[Any] = []
        self.borrowed: dict[str, str] = {}  # {name imported from another folder of the package: its module}
        self.docstrings: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Append a module after the modules that it imports from the folder; ValueError for a name that is taken."""
        if name in self.docstrings:
            return
        spec: Any = importlib.util.find_spec(name)
        package = name if spec.submodule_search_locations else spec.parent
        self.docstrings[name], imports, body = read_module(Path(spec.origin))
        for node in imports:
            if getattr(node, "level", 0):
                self.follow(node, package)
            else:
                self.imports.append(node)
        taken = {each for other in self.body for each in other.defined} - {"__all__"}
        if clashes := sorted(taken & {each for own in body for each in own.defined}):
            raise ValueError(f"{name}: {clashes[0]} is also a name in another module of {self.folder}; rename one")
        self.body += body

    def follow(self, node: ast.ImportFrom, package: str) -> None:
        """Add the module that is imported from this folder, or note the names from another one."""
        target = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        if target.startswith(f"{self.folder}."):
            self.add(target)
        else:
            self.borrowed |= {alias.name: target for alias in node.names}

    def reduce(self, roots: Iterable[str], unused: Collection[str] = ()) -> None:
        """Drop table rows of unused words, then definitions that neither roots nor top-level statements reach."""
        self.body = [without_rows(each, unused) for each in self.body]
        places = {name: each for each in self.body for name in each.defined}
        waiting = [*roots, *(name for each in self.body if not each.defined for name in each.read)]
        reached: set[Statement] = set()
        while waiting:
            each = places.get(waiting.pop())
            if each is not None and each not in reached:
                reached.add(each)
                waiting += each.read
        self.body = [each for each in self.body if not each.defined or each in reached]

    def names(self) -> frozenset[str]:
        """Return all names that the statements read or define."""
        return frozenset().union(*(each.read | each.defined for each in self.body))

    def code(self) -> str:
        """Return the imports in use, and the statements."""
        first, texts = self.body[0], [self.body[0].text.lstrip("\n")]
        for before, each in pairwise(self.body):
            # A statement between the two may be gone, and its blank lines with it.
            texts.append("\n\n" + each.text.lstrip("\n") if is_block(before.node) else each.text)
        space = "\n\n\n" if is_block(first.node) else "\n\n"
        return import_lines(self.imports, self.names()) + space + "".join(texts)

    def docstring(self, module: str) -> str:
        """Return the docstring of a module, with one legend of the dimension letters in all modules."""
        legends = [line for said in self.docstrings.values() for line in LEGEND.findall(said)]
        meanings = {word[0]: word for line in reversed(legends) for word in line.split(", ") if word[1:2] == " "}
        text = "".join(each.text for each in self.body)
        used = [meanings[letter] for letter in sorted(meanings) if re.search(rf"[(, ]{letter}[,) ]", text)]
        shapes = fill(f"Shapes: {', '.join(used)}.", LINE - 1, subsequent_indent="    ") if used else ""
        said = LEGEND.sub("", self.docstrings[module]).strip()
        return f"{said}\n\n{shapes}\n" if shapes else said


def import_lines(imports: Iterable[Any], used: Collection[str]) -> str:
    """Return one sorted list of imports of the names in use: the standard library, other packages, own files."""
    rows: set[tuple[bool, str, str]] = set()
    members: dict[tuple[str, str], set[str]] = defaultdict(set)  # a renamed name has a separate line
    for node, alias in ((each, alias) for each in imports for alias in each.names):
        if (alias.asname or alias.name).partition(".")[0] not in used:
            continue
        if isinstance(node, ast.ImportFrom):
            members["." * node.level + (node.module or ""), alias.asname or ""].add(ast.unparse(alias))
        else:
            rows.add((False, alias.name, f"import {ast.unparse(alias)}"))
    rows |= {(True, name, from_import(name, names)) for (name, _), names in members.items()}
    groups: list[list[str]] = [[], [], []]
    for _, name, line in sorted(rows):
        groups[2 if name.startswith(".") else name.partition(".")[0] not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(lines) for lines in groups if lines)


def from_import(module: str, names: Collection[str]) -> str:
    """Return an import of constants, classes and functions, one on each line where they do not fit on one."""
    ordered = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= LINE:
        return line
    return "\n    ".join([f"from {module} import (", *(f"{name}," for name in ordered)]) + "\n)"


def without_rows(table: Statement, words: Collection[str]) -> Statement:
    """Drop the rows of these words from the tables with string keys in a statement."""
    text = table.text
    if is_block(table.node):
        return table
    for node in (node for node in ast.walk(table.node) if isinstance(node, ast.Dict)):
        keys: list[Any] = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if all(isinstance(key, str) for key in keys) and set(keys) & set(words):
            pairs = [(key, value) for key, value in zip(keys, node.values, strict=True) if key not in words]
            rows = [f'"{key}": {ast.get_source_segment(table.text, value)}' for key, value in pairs]
            line = f"{{{', '.join(rows)}}}"
            if node.col_offset + len(line) > LINE:
                line = "{\n" + "".join(f"    {row},\n" for row in rows) + "}"
            text = text.replace(ast.get_source_segment(table.text, node) or "", line)
    return statement(text)


def is_block(node: ast.stmt) -> bool:
    """Return whether a statement is a function or a class."""
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines, in both branches of an `if`."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.If):
        return [name for inner in (*node.body, *node.orelse) for name in defined(inner)]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield every name that a piece of code reads, also in quoted annotations."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.arg | ast.FunctionDef | ast.AnnAssign):
            note = inner.returns if isinstance(inner, ast.FunctionDef) else inner.annotation
            if isinstance(note, ast.Constant) and isinstance(note.value, str):
                yield from re.findall(r"\w+", note.value)
