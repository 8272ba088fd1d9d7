"""Documentation strings: those of modules, classes and functions, once each, from source files alone."""

import platform
from pathlib import Path

import pytest

from qkv.scripts.example_data import docstrings
from qkv.scripts.recipes.schema import Recipe

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
    monkeypatch.setattr(docstrings, "library", lambda: tmp_path)
    return tmp_path


def test_each_string_is_read_once_and_cleaned(library: Path) -> None:
    found = list(docstrings.fresh(library / "a" / "module.py", set()))
    assert found == ["The module.", "A thing.\n\nfirst\n    indented", "Act."]
    assert list(docstrings.strings(library / "broken.py")) == list(docstrings.strings(library / "bytes.py")) == []


def test_a_module_is_a_document_and_no_text_is_in_both_splits(library: Path) -> None:
    corpus = docstrings.docstrings(Recipe("r", "", "", ""))
    assert corpus.texts["test"] == ["The module.\n\nA thing.\n\nfirst\n    indented\n\nAct.", "Number 9."]
    assert corpus.texts["train"] == [f"Number {number}." for number in (*range(9), 10, 11)]
    assert platform.python_version() in corpus.title


def test_the_library_of_this_python_is_found() -> None:
    found = docstrings.modules(docstrings.library() / "json")
    assert [path.stem for path in found] == ["__init__", "decoder", "encoder", "scanner", "tool"]
