"""Calls of `generate` without end: the same tokens, the same memory, no deadlock."""

import json
from collections.abc import Callable
from pathlib import Path

from watching import SEED, number

from processes import launch

FLAT = 0.01


def test_ten_thousand_calls_give_the_same_tokens_and_take_no_more_memory(
    tmp_path: Path, record: Callable[..., None]
) -> None:
    report, options = tmp_path / "found.json", json.dumps({"count": number("CALLS", 10_000), "seed": SEED})
    (status,) = launch("generation_jobs", [options, report], tmp_path / "log", processes=1)
    assert status == 0, (tmp_path / "log-0").read_text()[-5000:]
    found = json.loads(report.read_text())
    assert found["other tokens"] == [] and abs(found["memory growth"]) <= FLAT, found
    often = "{calls:,} calls of {models} models in {ways} ways, {different calls:,} different".format(**found)
    grown = f"the same tokens each time; memory {100 * found['memory growth']:+.2f} % over four fifths of them"
    record("`generate`", often, grown, **found)
