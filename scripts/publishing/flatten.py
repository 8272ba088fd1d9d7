"""How does a package of folders become two files? Its modules are joined, specialised, and freed of what is not reached.

What comes out is what people read on the Hub: a configuration and a model, complete, in the order in which they are
built up, with nothing in them that this model does not use.
"""

import ast
import hashlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from qkv.scripts.publishing.specialise import Facts, Specialiser, specialise

LICENSE = """\
# Copyright {year} The qkv authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""
YEAR = 2026


@dataclass
class Joined:
    """Modules in one text: their definitions in order of dependence, and what they import from elsewhere."""

    text: str = ""
    imports: list[str] = field(default_factory=list)
    siblings: dict[str, str] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)


def join(entries: Sequence[str], folder: str) -> Joined:
    """The entries, and the modules of the folder (a package) that they import, as one text."""
    found, waiting, done = Joined(), list(entries), set()
    texts: list[str] = []

    def visit(module: str) -> None:
        if module in done:
            return
        done.add(module)
        source = locate(module).read_text(encoding="utf-8")
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                target = absolute(node, module)
                if target.startswith(folder + "."):
                    visit(target)
                else:
                    found.siblings |= {alias.name: target for alias in node.names}
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found.imports.append(ast.unparse(node))
        texts.append(definitions(source, tree))
        found.modules.append(module)

    for module in waiting:
        visit(module)
    found.text = "\n\n".join(texts)
    return found


def definitions(source: str, tree: ast.Module) -> str:
    lines = source.splitlines(keepends=True)
    drop = set()
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.Import | ast.ImportFrom) or (index == 0 and isinstance(node, ast.Expr)):
            drop |= set(range(node.lineno, node.end_lineno + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in drop).strip() + "\n"


def shake(text: str, roots: Iterable[str], keep: set[str] = frozenset()) -> str:
    """The text without top-level definitions that the roots do not reach."""
    tree = ast.parse(text)
    names = {}
    for node in tree.body:
        for name in defined(node):
            names.setdefault(name, []).append(node)
    seen, waiting = set(), list(roots)
    while waiting:
        name = waiting.pop()
        for node in names.get(name, []):
            if id(node) not in seen:
                seen.add(id(node))
                waiting += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
                waiting += [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier()]
    s = Specialiser(text, {})
    out = text
    for node in reversed(tree.body):
        if defined(node) and id(node) not in seen:
            a, b = s.whole_lines(node)
            out = out[:a] + out[b:]
    return out


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id]
    return []


def locate(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        raise ValueError(f"{module} is not a module in a file of its own; flat code has no packages")
    return Path(spec.origin)


def absolute(node: ast.ImportFrom, module: str) -> str:
    parents = module.split(".")[: -node.level]
    return ".".join([*parents, node.module or ""])


def ruff(text: str) -> str:
    for words in (["check", "--quiet", "--select", "F401,I,UP034", "--fix", "--line-length", "120", "--isolated", "-"],
                  ["format", "--quiet", "--line-length", "120", "--isolated", "--config", "format.skip-magic-trailing-comma=true", "--config", "lint.isort.split-on-trailing-comma=false", "-"]):
        r = subprocess.run([sys.executable, "-m", "ruff", *words], input=text, text=True, capture_output=True)
        if not r.stdout:
            raise RuntimeError(r.stderr)
        text = r.stdout
    return text
