"""Join the modules of a folder into one source text that holds what a list of classes reaches, and nothing else."""

import ast
import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import Any

LEGEND = re.compile(r"^Shapes: (.*?)\.?$", re.MULTILINE)
LINE = 120
# {text of a statement: the names it reads}, for most statements are those of the code of other configs, too.
NAMES: dict[str, frozenset[str]] = {}


class Source:
    """A source text, its syntax tree, and the character offsets of the nodes."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.starts = [*accumulate(map(len, self.lines), initial=0)]

    def span(self, node: Any) -> tuple[int, int]:
        """Return (start, end) of an expression; the parser counts columns in bytes."""
        places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        start, end = (self.starts[n - 1] + len(self.lines[n - 1].encode()[:column].decode()) for n, column in places)
        return start, end

    def statement(self, node: Any) -> tuple[int, int]:
        """Return (start, end) of the lines of a statement, with its decorators and the comments above."""
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]) - 1
        while first and self.lines[first - 1].startswith("#"):
            first -= 1
        return self.starts[first], self.starts[node.end_lineno]

    def names(self, node: ast.stmt) -> frozenset[str]:
        """Return the names that a statement at the top level reads."""
        text = self.text[slice(*self.statement(node))]
        if text not in NAMES:
            NAMES[text] = frozenset(names_in(node))
        return NAMES[text]

    def replaced(self, edits: Iterable[tuple[tuple[int, int], str]]) -> str:
        """Return the text after edits ((start, end), new text) that do not overlap."""
        text = self.text
        for (start, end), new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


@cache
def part_of(text: str, module: str) -> tuple[str, list[Any], frozenset[str], str]:
    """Return docstring, imports, defined names and other text of a module; ValueError for an import below the top."""
    source = Source(text)
    docstring, imports = ast.get_docstring(source.tree) or "", []
    cut = source.tree.body[:1] if docstring else []
    for node in source.tree.body:
        inner: list[Any] = type_checking(node) or [node]
        if all(isinstance(each, ast.Import | ast.ImportFrom) for each in inner):
            cut.append(node)
            imports += inner
            continue
        for each in ast.walk(node):
            if isinstance(each, ast.Import | ast.ImportFrom):  # transformers would demand it on loading
                raise ValueError(f"{module}, line {each.lineno}: an import below the top; move it to the top")
    names = frozenset(name for node in source.tree.body for name in defined(node)) - {"__all__"}
    rest = source.replaced((source.statement(node), "") for node in cut).strip()
    return docstring, imports, names, f"{rest}\n\n\n"


@dataclass
class Joined:
    """Modules of one folder of a package, and of the folders in it, in one namespace."""

    folder: str
    text: str = ""
    imports: list[str] = field(default_factory=list)
    # {name imported from another folder of the package: its module}
    borrowed: dict[str, str] = field(default_factory=dict)
    docstrings: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, module: str) -> None:
        """Append a module after those it imports from the folder; ValueError names a line that cannot be joined."""
        if module in self.docstrings:
            return
        spec: Any = importlib.util.find_spec(module)
        path = Path(spec.origin)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        self.docstrings[module], imports, names, text = part_of(path.read_text(encoding="utf-8"), module)
        for node in imports:
            self.follow(node, package, f"{module}, line {node.lineno}")
        if clashes := sorted(self.names & names):
            raise ValueError(f"{module}: {clashes[0]} is also a name in another module of {self.folder}; rename one")
        self.names |= names
        self.text += text

    def follow(self, node: Any, package: str, place: str) -> None:
        """Add the module that is imported from this folder, or keep an import from elsewhere."""
        if not getattr(node, "level", 0):
            self.imports.append(ast.unparse(node))
            if re.search(rf"\b{package.partition('.')[0]}\b", self.imports[-1]):
                raise ValueError(f"{place}: imports the package by name; import relatively")
            return
        if not node.module or any(alias.asname or alias.name == "*" for alias in node.names):
            raise ValueError(f"{place}: joined modules share their names; write `from .module import Name`")
        target = importlib.util.resolve_name("." * node.level + node.module, package)
        if target.startswith(f"{self.folder}."):
            self.add(target)
        else:
            self.borrowed |= {alias.name: target for alias in node.names}

    def mentions(self, name: str) -> bool:
        """Return whether the text contains a name."""
        return bool(re.search(rf"\b{name}\b", self.text))

    def docstring(self, module: str) -> str:
        """Return the docstring of a module with one legend of the dimension letters in the text."""
        words = [
            word for said in self.docstrings.values() for line in LEGEND.findall(said) for word in line.split(", ")
        ]
        legend = {word[0]: word for word in reversed(words) if word[1:2] == " "}
        used = [legend[letter] for letter in sorted(legend) if re.search(rf"[(, ]{letter}[,) ]", self.text)]
        shapes = fill(f"Shapes: {', '.join(used)}.", 119, subsequent_indent="    ") if used else ""
        said = LEGEND.sub("", self.docstrings[module]).strip()
        return f"{said}\n\n{shapes}\n" if shapes else said

    def code(self) -> str:
        """Return the imports that the text uses, and the text."""
        text = re.sub(r"\n{4,}", "\n\n\n", self.text.strip())
        source = Source(text)
        body = source.tree.body
        space = "\n\n\n" if isinstance(body[0], ast.FunctionDef | ast.ClassDef) else "\n\n"
        return f"{import_lines(self.imports, frozenset().union(*map(source.names, body)))}{space}{text}\n"


def import_lines(imports: Iterable[str], used: Collection[str]) -> str:
    """Return one sorted list of imports of the names in use: the standard library, other packages, own files."""
    rows: set[tuple[int, bool, str, str]] = set()
    members: dict[tuple[str, str], set[str]] = defaultdict(set)  # a renamed name has a line of its own
    for node in ast.parse("\n".join(imports)).body:
        for alias in getattr(node, "names", []):
            if (alias.asname or alias.name).partition(".")[0] not in used:
                continue
            if isinstance(node, ast.ImportFrom):
                members["." * node.level + (node.module or ""), alias.asname or ""].add(ast.unparse(alias))
            else:
                rows.add((section(alias.name), False, alias.name, f"import {ast.unparse(alias)}"))
    rows |= {(section(name), True, name, from_import(name, names)) for (name, _), names in members.items()}
    groups = [[line for number, *_, line in sorted(rows) if number == place] for place in range(3)]
    return "\n\n".join("\n".join(lines) for lines in groups if lines)


def section(module: str) -> int:
    """Return the place of a module in a list of imports."""
    return 2 if module.startswith(".") else int(module.partition(".")[0] not in sys.stdlib_module_names)


def from_import(module: str, names: Collection[str]) -> str:
    """Return an import of constants, classes and functions, one on each line where they do not fit on one."""
    ordered = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= LINE:
        return line
    rows = "".join(f"    {name},\n" for name in ordered)
    return f"from {module} import (\n{rows})"


def without_rows(text: str, words: Collection[str]) -> str:
    """Return a text whose top-level tables with string keys have no row for these words."""
    source, edits = Source(text), []
    blocks = (ast.FunctionDef, ast.ClassDef)
    tops = [node for node in source.tree.body if not isinstance(node, blocks)]
    for table in (node for top in tops for node in ast.walk(top) if isinstance(node, ast.Dict)):
        keys: list[Any] = [key.value if isinstance(key, ast.Constant) else None for key in table.keys]
        if all(isinstance(key, str) for key in keys) and set(keys) & set(words):
            pairs = [(key, value) for key, value in zip(keys, table.values, strict=True) if key not in words]
            rows = [f'"{key}": {text[slice(*source.span(value))]}' for key, value in pairs]
            line = f"{{{', '.join(rows)}}}"
            if table.col_offset + len(line) > LINE:
                line = "{\n" + "".join(f"    {row},\n" for row in rows) + "}"
            edits.append((source.span(table), line))
    return source.replaced(edits)


def reachable(text: str, roots: Iterable[str]) -> str:
    """Return a text without the definitions that neither these names nor statements at its top level reach."""
    source = Source(text)
    places = {name: node for node in source.tree.body for name in defined(node)}
    reached: set[ast.stmt] = set()
    waiting = [*roots, *(name for node in source.tree.body if not defined(node) for name in source.names(node))]
    while waiting:
        node = places.get(waiting.pop())
        if node is not None and node not in reached:
            reached.add(node)
            waiting += source.names(node)
    gone = [node for node in source.tree.body if defined(node) and node not in reached]
    return source.replaced((source.statement(node), "") for node in gone)


def type_checking(node: ast.stmt) -> list[ast.stmt]:
    """Return the statements below `if TYPE_CHECKING:` where there are imports alone."""
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "TYPE_CHECKING":
        return []
    return node.body if all(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body) else []


def defined(node: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines, those in both branches of an `if` included."""
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
