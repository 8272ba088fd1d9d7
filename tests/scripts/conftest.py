"""Tables that tests make are kept nowhere."""

from pathlib import Path

import datasets
import pytest

from published import published, stock


@pytest.fixture(autouse=True)
def no_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of datasets' cache, empty for each test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    datasets.disable_progress_bars()
    return folder


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published decoder of transformers; do not change it."""
    return published(stock(), tmp_path_factory.mktemp("native") / "hub")
