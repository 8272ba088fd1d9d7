"""Two commands in one folder: one goes on to the same bits, the other says in one sentence that it does not."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import Case, Scene, halves, left, leftovers
from test_kills import killed
from watching import SEED, number

# What the one says that is not let in, or that comes when all is done.
SAID = {
    "train": r"qkv: another training writes to out; wait for it, or give another out=$",
    "sweep": r"qkv: another training writes to out; wait for it, or give another out=$",
    "publish": r"qkv: out is not empty; remove it or name another folder$",
    "convert": r"qkv: out is not empty; remove it or name another folder$",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("two") / "scene")


def outcome(case: Case, folder: Path, later: list[float]) -> str:
    """Start a command as often as is said, and return how that went for all but the one that goes on."""
    note = folder.with_name(f"{folder.name}-note")
    assert case.run(folder, later=later, note=str(note)) == [0], case.said(folder)
    ended = json.loads(note.read_text())
    said = [case.said(folder, rank) for rank in range(len(later))]
    assert 0 in ended and set(ended) <= {0, 1}, (ended, said)
    for status, text in zip(ended, said, strict=True):
        *_, last = text.splitlines()
        assert "Traceback" not in text, text
        assert not status or re.match(SAID[case.words[0]], last), text
    return "refused" if 1 in ended else "found it finished"


@pytest.mark.parametrize("name", ["digits", "the best is kept", "sweep", "publish", "convert"])
def test_one_goes_on_and_the_other_says_so(
    scene: Scene, name: str, tmp_path: Path, record: Callable[..., None]
) -> None:
    case, chance = scene.cases[name], random.Random(f"two {SEED} {name}")
    whole, outcomes = scene.whole(case), Counter[str]()
    rounds = number("PAIRS", 12)
    for index in range(rounds):
        folder = tmp_path / f"{index}"
        if index % 4 == 3:  # a lock that a killed process held holds nobody up
            killed(case, folder, whole, chance)
        at_once = index % 2 == 0
        outcomes[outcome(case, folder, [0.0, 0.0 if at_once else chance.uniform(0, 1.2 * whole.seconds)])] += 1
        assert left(folder) == whole.left and not halves(folder) and not leftovers(folder), case.said(folder)
    assert outcomes["refused"]
    found = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    record(
        f"two in one folder: {name}",
        f"{rounds} pairs, half of them at one moment",
        f"{found}; the same bits",
        **outcomes,
    )
