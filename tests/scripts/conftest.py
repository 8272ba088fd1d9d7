"""Tables that tests make are kept nowhere; tiny runs and a published decoder are made once."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

import own_runs
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


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny runs."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run_of(runs_folder: Path) -> Callable[[str], Path]:
    """Train a kind of run, once in a session."""
    return lambda kind: own_runs.trained(kind, runs_folder)
