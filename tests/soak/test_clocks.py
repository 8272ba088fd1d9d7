"""Clocks that jump by hours, forward and back, change nothing but the times that are written down."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import Scene, halves, left, leftovers
from test_kills import killed
from watching import SEED

NAMES = (
    "digits",
    "saved by the clock",
    "the best is kept",
    "two processes, DDP",
    "Trainer",
    "sweep",
    "publish",
    "convert",
)
ROUNDS = 3


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("clocks") / "scene")


def test_clocks_may_jump(scene: Scene, tmp_path: Path, record: Callable[..., None]) -> None:
    jumps, runs = 0, 0
    for name in NAMES:
        case = scene.cases[name]
        whole = scene.whole(case)
        for number in range(ROUNDS):
            folder, note = tmp_path / f"{runs}", tmp_path / f"{runs}-note"
            chance = random.Random(f"clocks {SEED} {name} {number}")
            if number:  # what a kill left is taken up at another time
                killed(case, folder, whole, chance)
            statuses = case.run(folder, clock=f"{SEED} {name} {number}", note=str(note))
            assert statuses == [0] * case.processes, (name, case.said(folder))
            assert left(folder) == whole.left and not halves(folder) and not leftovers(folder), name
            jumps += json.loads(note.read_text()).get("jumps", 0)
            runs += 1
    found = "the same bits as without, also where a kill came before"
    record("clocks jump by up to nine hours", f"{jumps:,} jumps in {runs} runs of {len(NAMES)} commands", found,
           jumps=jumps, runs=runs)  # fmt: skip
