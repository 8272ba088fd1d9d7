"""The table of what was read: every column and row is used, or has a line that says why not."""

import json
from pathlib import Path

from own_runs import SMALL, write_rows
from qkv.scripts.cli import main
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.tasks import registry
from qkv.scripts.training.record import read_lines


def test_nothing_is_left_out_without_a_line(tmp_path: Path) -> None:
    rows = [
        {"id": n, "text": f"text {n} " * (1 + 9 * (n % 9 == 0)), "label": "ab"[n % 2], "when": n} for n in range(90)
    ]
    rows += [{"id": 90, "text": "no class", "label": None, "when": 1}]
    where = str(write_rows(tmp_path / "x.jsonl", rows))
    words = ["bad_records=0.1", "text.length=16", "text.evaluated=5", *SMALL]
    recipe, _ = infer(where, words)
    lines = read_lines(registry.load(recipe), recipe)
    assert lines["columns used"] == "text, label" and lines["columns not used"] == "id, when"
    assert lines["classes of train"] == "b 37, a 35" and lines["training"].endswith("2 steps of 32, 0.889 epochs")
    assert lines["left out"] == "rows beyond text.evaluated 8, label: missing 1" and "text.length=16" in lines["cut"]
    assert main(["train", where, *words, f"out={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "record.json").read_text())["data"]["read"] == lines
    card = (tmp_path / "run" / "README.md").read_text()
    assert all(f"| {lines[name]} |" in card for name in ("columns used", "columns not used", "left out", "cut"))
