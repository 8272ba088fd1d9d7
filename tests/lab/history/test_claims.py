"""Verdicts: each follows from the figures by its rule, on either side of its limit."""

import copy
from functools import reduce
from operator import getitem
from typing import Any

import pytest

import tables
from qkv.scripts.lab.history.claims import CLAIMS, VERDICTS
from qkv.scripts.lab.history.claims import verdicts as judged
from qkv.scripts.lab.history.models import ATTENTION

TABLES = tables.beside(__file__)
RECORD: dict[str, Any] = TABLES["record"]
BREAKS: dict[str, tuple[list[Any], float]] = TABLES["breaks"]
UNMEASURED = ("Costs grow", "On GPUs", "28.4 BLEU")
UNDECIDED = "Squeezed into one vector"


def verdicts(record: dict[str, Any]) -> dict[str, str]:
    return {f"{one['claim']} ({place})": one["verdict"] for place, one in enumerate(judged(record))}


def test_what_holds_is_said_to_hold() -> None:
    found = verdicts(RECORD)
    assert len(found) == len(CLAIMS)
    for claim, verdict in found.items():
        assert verdict == ("not measured" if claim.startswith(UNMEASURED) else "holds"), claim


@pytest.mark.parametrize("claim", BREAKS)
def test_a_figure_beyond_its_limit_turns_its_verdict(claim: str) -> None:
    record = copy.deepcopy(RECORD)
    (*path, last), value = BREAKS[claim]
    reduce(getitem, path, record)[last] = value
    before, after = verdicts(RECORD), verdicts(record)
    changed = [name for name in before if before[name] != after[name]]
    first = next(name for name in before if name.startswith(claim))
    assert first in changed and after[first] == ("not measured" if claim == UNDECIDED else "does not hold")
    assert set(map(after.get, changed)) <= set(VERDICTS.values())


def test_both_opponents_are_judged_apart() -> None:
    record = copy.deepcopy(RECORD)
    record["steps"]["models"][ATTENTION] = {"seconds": [1.0, 1.5], "over": [[1, 2, 3], [0.8, 0.9, 3]]}
    changed = [name for name, verdict in verdicts(record).items() if verdict != verdicts(RECORD)[name]]
    assert len(changed) == 3 and all(name.startswith("The same, said of an LSTM with attention") for name in changed)


def test_findings_name_the_figures() -> None:
    found = {one["claim"]: one["measured"] for one in judged(RECORD)}
    assert "—" in {one["measured"] for one in judged(RECORD | {"heads": {"found": {}}})} - set(found.values())
    assert "LSTM: 90.0 % right at length 10, 30.0 % at 20" in found.values()
    assert found["More than ten times faster than an LSTM"] == "n = 10: 2.00; n = 40: 11.00"
