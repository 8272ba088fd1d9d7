"""What English is there on every machine? The documentation strings of the Python that runs, read from its files."""

import ast
import inspect
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.recipes.schema import Recipe

DOCUMENTATION = "https://docs.python.org/3/library/"
# Tests explain little, and what was installed beside the library is another matter.
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}


def docstrings(recipe: Recipe) -> Corpus:
    """A document for each module of the standard library; every tenth is for the test, and no text is in both."""
    seen: set[str] = set()
    documents = [text for path in modules(library()) if (text := "\n\n".join(fresh(path, seen)))]
    train = [text for index, text in enumerate(documents) if index % 10]
    title = f"documentation strings of Python {platform.python_version()}"
    return Corpus("docstrings", title, DOCUMENTATION, {"train": train, "test": documents[::10]})


def library() -> Path:
    """Where the standard library of the Python that runs is."""
    return Path(sysconfig.get_paths()["stdlib"])


def modules(root: Path) -> list[Path]:
    """The source files of a library in order of their names."""
    found = root.rglob("*.py")
    return sorted(path for path in found if not LEFT_OUT.intersection(path.relative_to(root).parts))


def fresh(path: Path, seen: set[str]) -> Iterator[str]:
    """The documentation strings of a source file that were not seen before."""
    for text in strings(path):
        if text not in seen:
            seen.add(text)
            yield text


def strings(path: Path) -> Iterator[str]:
    """The documentation strings of a source file, module, classes and functions; none of one that is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old code has escapes that newer Python warns of
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node, clean=False):
                yield inspect.cleandoc(text)
