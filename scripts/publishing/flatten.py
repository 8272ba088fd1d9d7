"""How does a package of folders become one flat folder? Files are copied as they are, but for where imports point.

transformers copies remote code file by file, and finds what else to copy by looking for lines `from .name import`.
Only modules that the entries reach are copied; what the copier would miss, or mistake, is refused here.
"""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# What transformers' dynamic_module_utils takes for a relative import, wherever the line stands.
COPIER = re.compile(r"^\s*(?:import\s+\.(\S+)\s*$|from\s+\.(\S+)\s+import)", re.MULTILINE)
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# From {package} {version}, {module}: a copy made for loading with `trust_remote_code`; change the original instead.
# SHA-256 of the original: {digest}
"""


def flatten(entries: Iterable[str]) -> dict[str, str]:
    """{file name: text} of the given modules (`package.folder.name`) and all that they import from their own package.

    ValueError names the file and line that transformers could not load.
    """
    files: dict[str, str] = {}
    owners: dict[str, str] = {}
    waiting = sorted(entries)
    while waiting:
        module = waiting.pop()
        name = module.rpartition(".")[2] + ".py"
        if owners.setdefault(name, module) != module:
            raise ValueError(f"{owners[name]} and {module} would both become {name}; rename one")
        if name not in files:
            files[name], imported = rewrite(module)
            waiting += sorted(imported)
    return files


def rewrite(module: str) -> tuple[str, set[str]]:
    """A module's text with its relative imports made flat, under a header of origin, and the modules it imports."""
    source = locate(module).read_text(encoding="utf-8")
    lines, imported = source.splitlines(keepends=True), set()
    for node in ast.walk(ast.parse(source)):
        place = f"{module}, line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            refuse_own_name(node, module, place)
        if isinstance(node, ast.ImportFrom) and node.level:
            if not node.module:
                raise ValueError(f"{place}: transformers does not see `from . import x`; import names from a module")
            target = absolute(node, module)
            imported.add(target)
            old, new = "." * node.level + node.module, "." + target.rpartition(".")[2]
            lines[node.lineno - 1] = lines[node.lineno - 1].replace(f"from {old} ", f"from {new} ", 1)
    text = "".join(lines)
    refuse_mistakes(text, imported, module)
    return header(module, source) + text, imported


def locate(module: str) -> Path:
    """The source file of a module, without importing it; ValueError when there is none, or it is a package."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        raise ValueError(f"{module} is not a module in a file of its own; flat code has no packages")
    return Path(spec.origin)


def absolute(node: ast.ImportFrom, module: str) -> str:
    """The full name of what a relative import names."""
    parents = module.split(".")[: -node.level]
    return ".".join([*parents, node.module or ""])


def refuse_own_name(node: ast.Import | ast.ImportFrom, module: str, place: str) -> None:
    """Raise for an absolute import of the package itself, which the machine that loads the copy does not have."""
    package = module.partition(".")[0]
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    relative = isinstance(node, ast.ImportFrom) and node.level
    if not relative and any(name.partition(".")[0] == package for name in names):
        raise ValueError(f"{place}: imports {package} by name; import relatively")


def refuse_mistakes(text: str, imported: set[str], module: str) -> None:
    """Raise when transformers would find other imports in the text than Python does."""
    seen = {first or second for first, second in COPIER.findall(text)}
    real = {name.rpartition(".")[2] for name in imported}
    if seen != real:
        raise ValueError(
            f"{module}: transformers reads the imports {sorted(seen)}, Python {sorted(real)}; write each as a line "
            "`from .name import …`, and none in a docstring"
        )


def header(module: str, source: str) -> str:
    """Comment lines that say what the file is, where it is from, and which text it was made of."""
    package = module.partition(".")[0]
    try:
        number = version(package)
    except PackageNotFoundError:
        number = "(a checkout)"
    digest = hashlib.sha256(source.encode()).hexdigest()
    return HEADER.format(package=package, version=number, module=module, digest=digest)
