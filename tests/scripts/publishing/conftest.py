"""The published folder that checks are tested on, made once."""

import shutil
from pathlib import Path

import pytest

from published import CODE, ours, published


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder with code and a vocabulary; do not change it."""
    return published(ours(), tmp_path_factory.mktemp("published") / "hub", **{CODE: "x = 1\n", "vocab.txt": "a\nb\n"})


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(original, tmp_path / "hub"))
