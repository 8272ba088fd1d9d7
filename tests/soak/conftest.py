"""The page and the record of long runs: `pytest tests/soak --page FILE`, from the seed of QKV_SOAK_SEED."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from watching import SEED

from pages import RecordedPage

HEAD = """# Long runs, kills, full disks

<!-- Written by `make soak`. Change tests/soak, never this file. -->

What thousands of calls leave behind, and what is left where a program is killed or finds its disk full. Memory is the
process's own (`RssAnon`) after everything that is free was given back; its growth is that of the line which fits all
measurements best. [`{record}`]({record}) has the seed and the figures of each row.

{made_with} {processor}.

| what | how often | found | minutes |
| --- | --- | --- | --- |
"""
PAGE = RecordedPage(
    HEAD, ("torch", "transformers", "accelerate", "safetensors"), lambda row: (row["often"], row["found"])
)


@pytest.fixture
def record() -> Callable[..., None]:
    """Put a result on the page, and its figures into the record."""
    began = time.monotonic()

    def keep(what: str, often: str, found: str, **figures: Any) -> None:
        PAGE.add(what, SEED, began, often=often, found=found, **figures)

    return keep


@pytest.fixture(autouse=True)
def no_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tables in no cache of datasets."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of this folder as slow."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page and the record, with the rows of earlier sessions."""
    PAGE.write(session)
