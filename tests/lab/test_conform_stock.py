"""Stock classes under `qkv conform`: every known architecture, a record, a page with verdicts."""

import json
from pathlib import Path

import pytest
import transformers

from qkv.modeling.conversion.convert import ARCHITECTURES
from qkv.scripts.common.files import table
from qkv.scripts.lab import conform_stock
from qkv.scripts.lab.__main__ import main

KNOWN = table(conform_stock.__file__)


def test_classes_are_those_of_every_architecture_and_others() -> None:
    assert KNOWN.keys() - {"others"} == {architecture.model_type for architecture in ARCHITECTURES}
    assert len(KNOWN["others"]) >= 40
    assert all(hasattr(transformers, name) for names in KNOWN.values() for name in names)


def test_every_failure_on_record_has_a_verdict() -> None:
    found = json.loads(conform_stock.RECORD.read_text("utf-8"))["classes"]
    verdicts = table(str(conform_stock.PAGE))
    failures = {(n, row["check"]) for n in found for row in found[n]["rows"] if row["status"] in ("FAILED", "error")}
    judged = {(name, check) for verdict in verdicts for name in verdict["classes"] for check in verdict["checks"]}
    assert found.keys() == {name for names in KNOWN.values() for name in names}
    assert failures <= judged
    assert all(any((name, check) in failures for check in v["checks"]) for v in verdicts for name in v["classes"])


@pytest.mark.slow
def test_a_class_is_checked_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conform_stock, "RECORD", tmp_path / "CONFORM.json")
    monkeypatch.setattr(conform_stock, "PAGE", tmp_path / "CONFORM.md")
    monkeypatch.setattr(conform_stock, "table", lambda path: {} if path == conform_stock.__file__ else [])
    assert main(["conform-stock", "MPNetForMaskedLM"]) == 0
    row = json.loads((tmp_path / "CONFORM.json").read_text("utf-8"))["classes"]["MPNetForMaskedLM"]["rows"][-1]
    assert (row["check"], row["status"]) == ("accumulation", "FAILED") and row["printed"].startswith("tensor(")
    assert "- accumulation: FAILED" in (tmp_path / "CONFORM.md").read_text("utf-8")
