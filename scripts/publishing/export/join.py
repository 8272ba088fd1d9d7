"""How do the modules of a folder become one text? Each after those it imports, with one list of imports in front."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill

from qkv.scripts.publishing.export.syntax import Text, replace

LEGEND = re.compile(r"^Shapes: (.*?)\.?$", re.MULTILINE)
# Imports and names that nobody reads go; what then fits on a line is put on one.
TIDY = (
    ("check", "--select=F401,F841,I", "--fix", "--unsafe-fixes", "--exit-zero"),
    ("format", "--config=format.skip-magic-trailing-comma=true"),
)


@dataclass
class Joined:
    """Modules of one folder of a package in one namespace, and what they import from elsewhere."""

    folder: str
    text: str = ""
    imports: list[str] = field(default_factory=list)
    # What comes from another folder of the package.
    borrowed: set[str] = field(default_factory=set)
    docstrings: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    # Attributes that the whole modules read.
    read: set[str] = field(default_factory=set)

    def add(self, module: str) -> None:
        """Add a module after all that it imports from its folder; ValueError names the line that cannot be joined."""
        if module in self.docstrings:
            return
        text = Text(locate(module).read_text(encoding="utf-8"))
        self.docstrings[module] = ast.get_docstring(text.tree) or ""
        cut = [(*text.whole(text.tree.body[0]), "")] if self.docstrings[module] else []
        for node in ast.walk(text.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                if node not in text.tree.body:
                    raise ValueError(f"{module}, line {node.lineno}: an import below the top; move it to the top")
                self.follow(node, module)
                cut.append((*text.whole(node), ""))
        self.refuse_clashes(text.tree, module)
        self.read |= set(attributes(text.tree))
        self.text += replace(text.source, sorted(cut)).strip() + "\n\n\n"

    def follow(self, node: ast.Import | ast.ImportFrom, module: str) -> None:
        """Add what is imported from this folder, and keep an import from elsewhere."""
        place = f"{module}, line {node.lineno}"
        refuse_own_name(node, module, place)
        if not isinstance(node, ast.ImportFrom) or not node.level:
            self.imports.append(ast.unparse(node))
            return
        if not node.module or any(alias.asname or alias.name == "*" for alias in node.names):
            raise ValueError(f"{place}: joined modules share their names; write `from .module import Name`")
        target = ".".join([*module.split(".")[: -node.level], node.module])
        if target.rpartition(".")[0] == self.folder:
            self.add(target)
        else:
            self.borrowed |= {alias.name for alias in node.names}

    def refuse_clashes(self, tree: ast.Module, module: str) -> None:
        """Raise when a name of the module is taken already."""
        names = {name for node in tree.body for name in defined(node)}
        if clashes := sorted(self.names & names):
            raise ValueError(f"{module}: {clashes[0]} is also a name in another module of {self.folder}; rename one")
        self.names |= names

    def mentions(self, name: str) -> int:
        """How often the text speaks of a name."""
        return len(re.findall(rf"\b{name}\b", self.text))

    def keep(self, roots: Iterable[str]) -> None:
        """Leave only what these names reach."""
        text = Text(self.text)
        places = {name: node for node in text.tree.body for name in defined(node)}
        reached: set[ast.stmt] = set()
        waiting = list(roots)
        while waiting:
            node = places.get(waiting.pop())
            if node is not None and node not in reached:
                reached.add(node)
                waiting += names_in(node)
        gone = [node for node in text.tree.body if defined(node) and node not in reached]
        self.text = replace(self.text, [(*text.whole(node), "") for node in gone])

    def drop_methods(self, called: Container[str]) -> None:
        """Leave out methods that neither the text calls nor anybody else: `called` are the names that others call."""
        text, gone = Text(self.text), []
        for owner in text.tree.body:
            for node in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(node, ast.FunctionDef) and node.name not in called and self.mentions(node.name) == 1:
                    gone.append((*text.whole(node), ""))
        self.text = replace(self.text, gone)

    def docstring(self, module: str) -> str:
        """What a module says of itself, with a legend of all letters that the text uses."""
        words = [
            word for said in self.docstrings.values() for line in LEGEND.findall(said) for word in line.split(", ")
        ]
        legend = {word[0]: word for word in reversed(words) if word[1:2] == " "}
        used = [legend[letter] for letter in sorted(legend) if re.search(rf"[(, ]{letter}[,) ]", self.text)]
        shapes = fill(f"Shapes: {', '.join(used)}.", 119, subsequent_indent="    ") if used else ""
        said = LEGEND.sub("", self.docstrings[module]).strip()
        return f"{said}\n\n{shapes}\n" if shapes else said

    def finished(self) -> str:
        """Imports and text, laid out."""
        text = "\n".join(dict.fromkeys(self.imports)) + "\n\n\n" + self.text
        for command in TIDY:
            words = [sys.executable, "-m", "ruff", *command, "--quiet", "--isolated", "--line-length=120", "-"]
            result = subprocess.run(words, input=text, capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(f"{self.folder} cannot be laid out: {result.stderr.strip()}")
            text = result.stdout
        return text


def locate(module: str) -> Path:
    """The source file of a module, without importing it; ValueError when there is none, or it is a package."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        raise ValueError(f"{module} is not a module in a file of its own; flat code has no packages")
    return Path(spec.origin)


def refuse_own_name(node: ast.Import | ast.ImportFrom, module: str, place: str) -> None:
    """Raise for an absolute import of the package itself, which the machine that loads the copy does not have."""
    package = module.partition(".")[0]
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    relative = isinstance(node, ast.ImportFrom) and node.level
    if not relative and any(name.partition(".")[0] == package for name in names):
        raise ValueError(f"{place}: imports {package} by name; import relatively")


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def without_attributes(source: str, unwanted: Set[str]) -> str:
    """The text without statements that set these attributes, unless something reads them."""
    text, gone = Text(source), []
    unread = unwanted - set(attributes(text.tree))
    for node in ast.walk(text.tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or isinstance(node.value, ast.Call):
            continue  # a call might do something
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(each, ast.Attribute) and each.attr in unread for each in targets):
            gone.append((*text.whole(node), ""))
    return replace(source, sorted(gone))


def attributes(tree: ast.AST) -> Iterator[str]:
    """Every attribute that a piece of code reads, also by a name in quotes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def names_in(node: ast.AST) -> Iterator[str]:
    """Every name that a piece of code reads; annotations may be texts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.arg | ast.FunctionDef | ast.AnnAssign):
            note = inner.returns if isinstance(inner, ast.FunctionDef) else inner.annotation
            if isinstance(note, ast.Constant) and isinstance(note.value, str):
                yield note.value
