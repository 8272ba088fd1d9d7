"""Every notebook runs from its first cell to its last; outputs are those of the site's build, and none is stored."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from checkout import ROOT

NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
TUTORIAL = "how_a_transformer_works"
SLOW = {"attention_heads", "from_scratch_to_hub", TUTORIAL}
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NOTEBOOKS]


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]


def test_there_are_four() -> None:
    assert NOTEBOOKS.keys() == {"from_scratch_to_hub", "change_a_checkpoint", "attention_heads", TUTORIAL}


def run(name: str) -> dict[str, Any]:
    """The names that a notebook defines."""
    namespace, threads = {"__name__": "__main__"}, torch.get_num_threads()
    try:
        for number, cell in enumerate(code(name)):
            exec(compile(cell, f"{name}.ipynb, cell {number}", "exec"), namespace)
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)
    return namespace


@pytest.mark.parametrize("name", EACH)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(name)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_stores_no_outputs_and_checks_what_it_says(name: str) -> None:
    cells = [cell for cell in NOTEBOOKS[name]["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert any("assert " in cell for cell in code(name))


# Answers to the exercises that are wrong, each in another way.
WRONG: dict[str, list[Callable[[dict[str, Any]], tuple[Any, ...]]]] = {
    "embed": [
        lambda own: (lambda ids: own["token_table"][ids],),
        lambda own: (lambda ids: own["token_table"][ids] + own["position_table"][1 : len(ids) + 1],),
    ],
    "scores": [
        lambda own: (lambda query, key: query @ key.T,),
        lambda own: (lambda query, key: key @ query.T / 32**0.5,),
        lambda own: (lambda query, key: query @ key.T / 32,),
    ],
    "weights": [
        lambda own: (lambda scores: scores.softmax(-1),),
        lambda own: (lambda scores: scores.softmax(-1).tril(),),
        lambda own: (lambda scores: own["attention_weights"](2 * scores),),
    ],
    "mix": [lambda own: (lambda weights, value: value[:4],), lambda own: (lambda weights, value: weights @ value / 6,)],
    "heads": [
        lambda own: (own["lookup"], own["previous"]),
        lambda own: (min([(0, 0), (0, 1)], key=own["attention_to_previous"].get), own["lookup"]),
    ],
    "sentence": [
        lambda own: ("greta tea ben milk carla juice david soup greta",),
        lambda own: ("greta cocoa greta",),
        lambda own: ("greta cocoa ben milk carla juice david soup nobody",),
    ],
    "entropy": [
        lambda own: (lambda weights: -(weights * weights.log2()).sum(),),
        lambda own: (lambda weights: own["entropy"](weights) * math.log(2),),
    ],
}


@pytest.mark.slow
def test_exercises_take_their_solutions_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = run(TUTORIAL)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Exercise")]
    assert said == [f"Exercise {number}: {end}" for number in range(1, 8) for end in ("not answered yet", "right")]
    assert {name for name in own if name.startswith("check_")} == {f"check_{name}" for name in WRONG}
    for number, (name, answers) in enumerate(WRONG.items(), 1):
        for answer in answers:
            with pytest.raises(AssertionError, match=f"Exercise {number}: "):
                own[f"check_{name}"](*answer(own))
