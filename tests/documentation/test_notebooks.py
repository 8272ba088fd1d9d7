"""Every notebook runs from its first cell to its last; outputs are those of the site's build, and none is stored."""

import json
import logging
from pathlib import Path

import pytest
import torch

from checkout import ROOT

NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
SLOW = {"attention_heads", "from_scratch_to_hub"}
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NOTEBOOKS]


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert NOTEBOOKS.keys() == {"from_scratch_to_hub", "change_a_checkpoint", "attention_heads"}


@pytest.mark.parametrize("name", EACH)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace, threads = {"__name__": "__main__"}, torch.get_num_threads()
    try:
        for number, cell in enumerate(code(name)):
            exec(compile(cell, f"{name}.ipynb, cell {number}", "exec"), namespace)
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_stores_no_outputs_and_checks_what_it_says(name: str) -> None:
    cells = [cell for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert any("assert " in cell for cell in code(name))
