"""The manual of Django: fetched once, used only with its hash, and split so that no paragraph is in both."""

import hashlib
import io
import platform
import tarfile
from pathlib import Path

import pytest

from qkv.scripts.example_data import documentation
from recipes import recipe_of

RECIPE = recipe_of()
LONG = "words that say something about the topic, over and over, until there are enough of them for number"


def source() -> bytes:
    """A distribution of 30 pages on two subjects, with what is to be left out."""
    pages = {f"docs/ref/models/p{number:02}.txt": page(number) for number in range(15)}
    pages |= {f"docs/topics/forms/p{number:02}.txt": page(100 + number) for number in range(15)}
    pages |= {"docs/releases/1.txt": "left out", "docs/conf.py": "left out", "django/models.py": "left out"}
    pages["docs/misc/design.txt"] = page(500)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in pages.items():
            member = tarfile.TarInfo(f"django-5.2.19/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def page(number: int) -> str:
    return "Title\n=====\n\n" + "\n\n".join(f"{LONG}\n{number}-{index} é" for index in range(20)) + f"\n\n{LONG} x"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, as pip may be told to use, and an empty cache."""
    content = source()
    (tmp_path / "index" / "django").mkdir(parents=True)
    (tmp_path / "index" / "files").mkdir()
    (tmp_path / "index" / "files" / documentation.ARCHIVE).write_bytes(content)
    address = (tmp_path / "index").as_uri()
    link = f'<a href="../files/{documentation.ARCHIVE}#sha256=x">d</a><a href="../files/django-5.2.18.tar.gz">d</a>'
    page = tmp_path / "index" / "django" / "index.html"
    page.write_text(link)
    monkeypatch.setattr(documentation, "urlopen", opener(page))
    monkeypatch.setattr(documentation, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "index"


def opener(page: Path) -> object:
    """What opens addresses of files only, and a folder as the page in it: nothing beyond this machine."""
    from urllib.request import Request, urlopen

    def opened(address: str | Request, timeout: float) -> object:
        name = address.full_url if isinstance(address, Request) else address
        assert name.startswith("file:")
        return urlopen(page.as_uri() if name.endswith("/django/") else name, timeout=timeout)

    return opened


def test_pages_are_documents_and_what_changes_is_left_out(index: Path) -> None:
    corpus = documentation.documents(RECIPE)
    assert len(corpus.texts["train"]) + len(corpus.texts["test"]) == 31 and len(corpus.texts["test"]) == 3
    assert not any("left out" in text for texts in corpus.texts.values() for text in texts)
    (index / "files" / documentation.ARCHIVE).unlink()
    assert documentation.documents(RECIPE) == corpus  # from the cache


def test_paragraphs_know_their_subject_and_blocks_stay_together(index: Path) -> None:
    corpus = documentation.paragraphs(RECIPE)
    train, test = (dict(zip(corpus.texts[name], corpus.labels[name], strict=True)) for name in ("train", "test"))
    assert not train.keys() & test.keys() and len(test) > 30 and f"{LONG} x" in train.keys() | test.keys()
    assert {corpus.names[label] for label in test.values()} == {"models", "forms"}
    assert train.get(f"{LONG} 3-0 é", test.get(f"{LONG} 3-0 é")) == corpus.names.index("models")
    for number in range(15):  # the first eight paragraphs of a page are a block
        assert len({f"{LONG} {number}-{place} é" in test for place in range(8)}) == 1


def test_a_file_of_another_hash_is_not_used(index: Path) -> None:
    cached = documentation.archive()
    cached.write_bytes(b"something else")
    assert hashlib.sha256(documentation.archive().read_bytes()).hexdigest() == documentation.SHA256
    cached.unlink()
    (index / "files" / documentation.ARCHIVE).write_bytes(b"something else")
    with pytest.raises(OSError, match="SHA-256 .*, expected .*; use data=docstrings"):
        documentation.archive()
    assert list(cached.parent.iterdir()) == []


SOURCE = '''"""The module."""


class Thing:
    """A thing.

    first
        indented
    """

    async def act(self):
        """Act."""


def act():
    """Act."""
    """No docstring."""


def silent(): ...
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "a" / "module.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "bytes.py").write_bytes(b'"""\xff"""')
    (tmp_path / "test" / "left_out.py").write_text('"""Left out."""')
    for number in range(12):
        (tmp_path / f"m{number:02}.py").write_text(f'"""Number {number}."""\ndef f():\n    """Act."""\n')
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    return tmp_path


def test_each_string_is_read_once_and_cleaned(library: Path) -> None:
    found = list(documentation.docstrings_of(library / "a" / "module.py"))
    assert found == ["The module.", "A thing.\n\nfirst\n    indented", "Act.", "Act."]
    assert (
        list(documentation.docstrings_of(library / "broken.py"))
        == list(documentation.docstrings_of(library / "bytes.py"))
        == []
    )


def test_a_module_is_a_document_and_no_text_is_in_both_splits(library: Path) -> None:
    corpus = documentation.docstrings(recipe_of())
    assert corpus.texts["test"] == ["The module.\n\nA thing.\n\nfirst\n    indented\n\nAct.", "Number 9."]
    assert corpus.texts["train"] == [f"Number {number}." for number in (*range(9), 10, 11)]
    assert platform.python_version() in corpus.title
