"""The table of what was read: every column and row is used, or has a line that says why not."""

import json
from pathlib import Path
from typing import Any

from own_runs import SMALL, write_rows
from qkv.scripts.cli import main
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.text_columns import read_corpus
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


def test_files_that_are_left_out_are_said_once(tmp_path: Path, capsys: Any) -> None:
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(60)]
    folder = write_rows(tmp_path / "data" / "x.jsonl", rows).parent
    (folder / "notes.odt").write_text("no table")
    words = ["leaked_records=1", *SMALL, f"out={tmp_path / 'run'}"]
    assert main(["train", str(folder), *words]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count(".odt") == 1
    assert main(["evaluate", str(tmp_path / "run"), str(folder)]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count(".odt") == 1
    recipe, _ = infer(str(folder), ["task=causal-lm", "streaming=true", "text.tokenizer=bytes"])
    assert read_corpus(recipe).read.left_out == {".odt": 1}
