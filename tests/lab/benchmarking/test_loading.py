"""Timing of loading: turns alternate, a difference stops it, and ratios are of the same turn."""

from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.scripts.lab.benchmarking import loading
from qkv.scripts.lab.benchmarking.contenders import stock_model
from qkv.scripts.lab.benchmarking.equality import UnequalError
from qkv.scripts.publishing.integrity.loading import Loaded
from tiny_workloads import tiny

SECONDS = {"qkv": 1.0, "qkv-published": 2.0, "transformers": 3.0}


def pretend(monkeypatch: pytest.MonkeyPatch, answers: dict[str, float]) -> list[str]:
    """Loads that take no time."""
    asked = []

    def load(name: str, folder: Path, home: Path) -> Loaded:
        asked.append(name)
        logits = torch.tensor(answers.get(name, 0.5))
        return Loaded({"seconds": {"first": SECONDS[name], "again": 1.0}}, {"logits": logits})

    monkeypatch.setattr(loading, "load", load)
    return asked


def measure(name: str, rounds: int = 2) -> dict[str, Any]:
    workload = tiny(name)
    stock = stock_model(workload, 0, torch.device("cpu"), torch.float32)
    return loading.measure_loading(workload, stock, rounds, lambda what, laps: None)


@pytest.mark.parametrize(("name", "ratio"), [("load", 3.0), ("load-again", 1.0)])
def test_the_part_that_is_named_is_timed_in_turns(name: str, ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, {})
    record = measure(name)
    assert asked == [*SECONDS, *reversed(SECONDS), *SECONDS]
    assert record["contenders"]["qkv"]["times_as_fast"] == [ratio] * 3


def test_different_answers_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"qkv-published": 0.25})
    with pytest.raises(UnequalError, match="there is nothing to time"):
        measure("load")


@pytest.mark.slow
def test_all_load_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, loads = loading.load, []
    monkeypatch.setattr(loading, "load", lambda *words: loads.append(real(*words)) or loads[-1])
    measure("load", rounds=1)
    assert len(loads) == 6 and all(lap.report["seconds"]["first"] > 0 for lap in loads)
    assert len({lap.report["class"] for lap in loads}) == 2
