"""Loads without end: the same outputs, the same memory, no module, file or folder that stays."""

import json
from collections.abc import Callable
from pathlib import Path

from watching import SEED, number

from processes import launch

FLAT = 0.01


def test_two_thousand_loads_leave_nothing_behind(tmp_path: Path, record: Callable[..., None]) -> None:
    found, count = tmp_path / "found.json", number("LOADS", 2000)
    words = [tmp_path, count, SEED, found]
    (status,) = launch("load_jobs", words, tmp_path / "log", processes=1, HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert status == 0, (tmp_path / "log-0").read_text()[-5000:]
    facts = json.loads(found.read_text())
    own = facts["memory growth without what safetensors forgets"]
    assert facts["other outputs"] == [] and abs(own) <= FLAT and abs(facts["other objects a load"]) < 1, facts
    assert all(first == last for first, last in facts["held"].values()), facts["held"]
    often = f"{count:,} loads of {facts['folders']} folders: {', '.join(facts['ways'])}"
    grown = f"memory {100 * facts['memory growth']:+.2f} %, without what safetensors forgets {100 * own:+.2f} %"
    record("loading", often, f"the same outputs; {grown}; no more modules, open or temporary files", **facts)
