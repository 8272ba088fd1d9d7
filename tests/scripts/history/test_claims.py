"""Verdicts: each follows from the figures by its rule, on either side of its limit."""

import copy
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from qkv.scripts.history.activations import BOTH, NEITHER
from qkv.scripts.history.claims import CLAIMS, VERDICTS
from qkv.scripts.history.claims import verdicts as judged
from qkv.scripts.history.models import ATTENTION, LEARNED, RNN, TRANSFORMER

# Where everything holds that is measured.
SEEN = {"mean": [0.0] * 3, "deviation": [1.0, 1.0, 1.0], "gradient": [1.0, 1.0, 1.0]}
GONE = {"mean": [0.0] * 3, "deviation": [1.0, 5.0, 50.0], "gradient": [0.001, 0.01, 1.0]}
RECORD: dict[str, Any] = {
    "size": {"training_lengths": [10, 20], "test_lengths": [10, 20, 30, 40]},
    "quality": {
        RNN: [[10, 0.9], [20, 0.3], [30, 0.1], [40, 0.1]],
        ATTENTION: [[10, 1.0], [20, 0.8], [30, 0.1], [40, 0.1]],
        TRANSFORMER: [[10, 1.0], [20, 0.9], [30, 0.95], [40, 0.91]],
        LEARNED: [[10, 1.0], [20, 0.95], [30, 0.1], [40, 0.1]],
    },
    "gradients": {
        "untrained": {
            RNN: [[1, 2.0], [9, 0.001]], ATTENTION: [[1, 2.0], [9, 1.9]], TRANSFORMER: [[1, 2.0], [9, 2.1]],
        }
    },
    "steps": {
        "lengths": [10, 40],
        "models": {
            RNN: {"seconds": [1.0, 2.5], "over": [[1, 2, 3], [9, 11, 12]]},
            ATTENTION: {"seconds": [1.0, 9.5], "over": [[1, 2, 3], [9, 12, 14]]},
        },
    },
    "layers": {
        "LSTM": {"seconds": [[8, 1.0], [16, 2.0]], "bytes": [[8, 10], [16, 20]]},
        "attention, eager": {"seconds": [[8, 1.0], [16, 4.0]], "bytes": [[8, 10], [16, 40]]},
        "attention, sdpa": {"seconds": [[8, 1.0], [16, 4.0]], "bytes": [[8, 10], [16, 40]]},
    },
    "activations": {
        f"{variant}, {start}": copy.deepcopy(seen) for variant, seen in ((BOTH, SEEN), (NEITHER, GONE)) for start in "ab"
    },
}  # fmt: skip
UNMEASURED = ("Costs grow", "On GPUs", "28.4 BLEU")
# What turns a claim by the beginning of its words: the place of a figure in the record, and another value.
Place = tuple[Any, ...]
BREAKS: dict[str, tuple[Place, float]] = {
    "Squeezed": (("quality", RNN, 1, 1), 0.75),
    "Squeezed into one vector": (("quality", RNN, 0, 1), 0.45),
    "Attention helps": (("quality", ATTENTION, 1, 1), 0.45),
    "Self-attention is better": (("quality", ATTENTION, 1, 1), 0.91),
    "Within the lengths": (("quality", LEARNED, 1, 1), 0.89),
    "Sinusoids": (("quality", TRANSFORMER, 2, 1), 0.89),
    "A Transformer catches": (("quality", TRANSFORMER, 3, 1), 0.89),
    "Learned positions do not": (("quality", LEARNED, 2, 1), 0.5),
    "A Transformer trains": (("steps", "models", RNN, "over", 0, 1), 0.9),
    "Gates or not": (("gradients", "untrained", RNN, 1, 1), 0.03),
    "With attention": (("gradients", "untrained", ATTENTION, 1, 1), 0.1),
    "In a Transformer": (("gradients", "untrained", TRANSFORMER, 1, 1), 0.1),
    "More than ten": (("steps", "models", RNN, "over", 1, 1), 9.9),
    "Going word by word": (("steps", "models", RNN, "seconds", 1), 1.9),
    "Recurrence takes O(n d²)": (("layers", "LSTM", "seconds", 1, 1), 4.0),
    "Self-attention takes O(n² d)": (("layers", "attention, eager", "seconds", 1, 1), 2.0),
    "Recurrence takes O(n d) space": (("layers", "LSTM", "bytes", 1, 1), 40),
    "Self-attention takes O(n² + n d)": (("layers", "attention, eager", "bytes", 1, 1), 20),
    "The same, said of a fused": (("layers", "attention, sdpa", "bytes", 1, 1), 20),
    "With residual sums and norms": (("activations", f"{BOTH}, b", "deviation", 1), 1.2),
    "With residual sums and": (("activations", f"{BOTH}, b", "mean", 2), -0.1),
    "Without both": (("activations", f"{NEITHER}, b", "deviation", 2), 9.0),
    "With residual sums, gradient": (("activations", f"{BOTH}, b", "gradient", 1), 2.1),
    "Without, gradients": (("activations", f"{NEITHER}, b", "gradient", 1), 0.2),
}
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
    assert "LSTM: 90.0 % right at length 10, 30.0 % at 20" in found.values()
    assert found["More than ten times faster than an LSTM"] == "n = 10: 2.00; n = 40: 11.00"
