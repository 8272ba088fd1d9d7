"""The manual of Django, fetched once and used only with its hash, and Python's docstrings; no text is in two splits."""

import hashlib
import io
import tarfile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from qkv.scripts.example_data import documentation
from recipes import recipe_of

RECIPE = recipe_of()
LONG = "words that say something about the topic, over and over, until there are enough of them for number"


def page(number: int) -> str:
    return "Title\n=====\n\n" + "\n\n".join(f"{LONG}\n{number}-{index} é" for index in range(20)) + f"\n\n{LONG} x"


def source() -> bytes:
    """A distribution of 31 pages, and files to be left out."""
    pages = {f"docs/{folder}/p{number:02}.txt": page(first + number) for number in range(15)
             for folder, first in (("ref/models", 0), ("topics/forms", 100))}  # fmt: skip
    pages |= dict.fromkeys(["docs/releases/1.txt", "docs/conf.py", "django/models.py"], "left out")
    pages["docs/misc/design.txt"] = page(500)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in pages.items():
            member = tarfile.TarInfo(f"django-5.2.19/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, as pip may be told to use, and an empty cache."""
    content, page = source(), tmp_path / "index" / "django" / "index.html"
    page.parent.mkdir(parents=True)
    (tmp_path / "index" / documentation.ARCHIVE).write_bytes(content)
    page.write_text(f'<a href="../{documentation.ARCHIVE}#sha256=x">d</a><a href="../django-5.2.18.tar.gz">d</a>')

    def opened(address: str | Request, timeout: float) -> object:
        name = address.full_url if isinstance(address, Request) else address
        assert name.startswith("file:")  # nothing beyond this machine
        return urlopen(page.as_uri() if name.endswith("/django/") else name, timeout=timeout)

    monkeypatch.setattr(documentation, "urlopen", opened)
    monkeypatch.setattr(documentation, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "index"


def test_pages_are_documents_and_are_kept(index: Path) -> None:
    corpus = documentation.documents(RECIPE)
    assert len(corpus.texts["train"]) == 28 and len(corpus.texts["test"]) == 3
    assert not any("left out" in text for texts in corpus.texts.values() for text in texts)
    (index / documentation.ARCHIVE).unlink()
    assert documentation.documents(RECIPE) == corpus


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
    (index / documentation.ARCHIVE).write_bytes(b"something else")
    with pytest.raises(OSError, match=f"{documentation.SHA256}.*data=docstrings"):
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


def test_a_module_is_a_document_and_no_text_is_in_both_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {"a/module.py": SOURCE.encode(), "broken.py": b"def (", "bytes.py": b'"""\xff"""',
                          "test/left_out.py": b'"""Left out."""'}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for number in range(12):
        (tmp_path / f"m{number:02}.py").write_text(f'"""Number {number}."""\ndef f():\n    """Act."""\n')
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    corpus = documentation.library(recipe_of(data="docstrings"))
    assert corpus.texts["test"] == ["The module.\n\nA thing.\n\nfirst\n    indented\n\nAct.", "Number 9."]
    assert corpus.texts["train"] == [f"Number {number}." for number in (*range(9), 10, 11)]


def test_sources_are_documents_of_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(11):
        (tmp_path / f"m{number:02d}.py").write_text(f"x = {number % 10}\n")
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    made = documentation.library(recipe_of(data="sources"))
    assert made.texts == {"train": [f"x = {number}\n" for number in range(1, 10)], "test": ["x = 0\n"]}


def test_tasks_keep_the_splits_of_the_paragraphs(index: Path) -> None:
    whole, corpus = documentation.paragraphs(RECIPE), documentation.tasks(recipe_of(text={"made": 20}))
    assert len(corpus.texts["train"]) == 20 and len(corpus.texts["test"]) == 2 * len(whole.texts["test"])
    for split, texts in corpus.texts.items():
        beginnings = {" ".join(text.split()[: documentation.READ]) for text in whole.texts[split]}
        for task, text, target in zip(corpus.tasks[split], texts, corpus.targets[split], strict=True):
            assert text.startswith(f"{task}: ") and (
                target in whole.names if task == "subject" else target in beginnings
            )
    restored = corpus.tasks["train"].index("restore")
    plain = corpus.texts["train"][restored].removeprefix("restore: ")
    assert plain.split() == corpus.targets["train"][restored].lower().replace(",", " ").replace(".", " ").split()
