"""Calls of `generate` without end: the same tokens, the same memory, no deadlock, in threads too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watching import SEED, number

from processes import launch

FLAT = 0.01


def answer(tmp_path: Path, name: str, **options: Any) -> dict[str, Any]:
    """What a job found, in a process of its own."""
    found = tmp_path / "found.json"
    (status,) = launch("generation_jobs", [name, json.dumps(options), found], tmp_path / "log", processes=1)
    assert status == 0, (tmp_path / "log-0").read_text()[-5000:]
    return json.loads(found.read_text())


def test_ten_thousand_calls_give_the_same_tokens_and_take_no_more_memory(
    tmp_path: Path, record: Callable[..., None]
) -> None:
    found = answer(tmp_path, "repeated", count=number("CALLS", 10_000), seed=SEED)
    assert found["other tokens"] == [] and abs(found["memory growth"]) <= FLAT, found
    often = "{calls:,} calls of {models} models in {ways} ways, {different calls:,} different".format(**found)
    grown = f"the same tokens each time; memory {100 * found['memory growth']:+.2f} % over four fifths of them"
    record("`generate`", often, grown, **found)


@pytest.mark.parametrize("one_model", [True, False])
def test_threads_generate_what_one_does(tmp_path: Path, record: Callable[..., None], one_model: bool) -> None:
    count = number("CALLS", 10_000) // 10
    found = answer(tmp_path, "threaded", count=count, seed=SEED, threads=8, one_model=one_model)
    assert found["other tokens"] == [], found
    what = f"`generate` in 8 threads, {'all on one model' if one_model else 'on all models'}"
    record(what, f"{found['calls']:,} calls", "the same tokens as alone, no deadlock", **found)
