"""The page and the record of what long runs found: `pytest tests/soak --page FILE`, from the seed of QKV_SOAK_SEED."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from watching import SEED

from pages import made_with, page_of
from qkv.scripts.common.environment import commit, processor, versions

HEAD = """# Long runs, kills, full disks

<!-- Written by `make soak`. Change tests/soak, never this file. -->

What thousands of calls leave behind, and what is left where a program is killed, finds its disk full, sees the clock jump
or meets another one in its folder. Memory is the process's own (`RssAnon`) after everything that is free was given back;
its growth is that of the line which fits all measurements best. [`{record}`]({record}) has the seed and the figures of
each row.

{made_with} {processor}.

| what | how often | found | minutes |
| --- | --- | --- | --- |
"""
FOUND: dict[str, dict[str, Any]] = {}
PROGRAMS = ("torch", "transformers", "accelerate", "safetensors")


@pytest.fixture
def record() -> Callable[..., None]:
    """Put what was found on the page, and its figures into the record."""
    began = time.monotonic()

    def keep(what: str, often: str, found: str, **figures: Any) -> None:
        taken = {"seed": SEED, "commit": commit(), "minutes": round((time.monotonic() - began) / 60, 1)}
        FOUND[what] = {"often": often, "found": found, **taken, **figures}

    return keep


@pytest.fixture(autouse=True)
def no_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tables in no cache of datasets."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this takes minutes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record, with what an earlier session put there that ran other parts, and the page from it."""
    if not (path := page_of(session)) or not FOUND:
        return
    file = path.with_suffix(".json")
    before = json.loads(file.read_text(encoding="utf-8"))["found"] if file.is_file() else {}
    facts = {"processor": processor(), "versions": versions(), "found": before | FOUND}
    file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    head = HEAD.format(**facts, made_with=made_with(*PROGRAMS), record=file.name)
    rows = [(what, each["often"], each["found"], f"{each['minutes']:g}") for what, each in facts["found"].items()]
    path.write_text(head + "".join(f"| {' | '.join(row)} |\n" for row in rows), encoding="utf-8")
