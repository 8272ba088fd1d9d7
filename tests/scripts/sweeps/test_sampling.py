"""Suggestions repeat, lie in their ranges with few digits, and come near to what is best."""

import math

import pytest

from qkv.scripts.sweeps.sampling import Tried, suggest
from qkv.scripts.sweeps.space import read_space

WORDS = ["lr=1e-4..1e-1", "batch_size=4..64", "schedule=cosine,linear", "weight_decay=0.0..0.3"]


def sampled(count: int, *, lower_is_better: bool = True) -> list[Tried]:
    """Trials of a loss with its minimum at lr=1e-3 and a linear schedule; every fifth one fails."""
    _, dimensions = read_space(WORDS)
    tried: list[Tried] = []
    for number in range(count):
        chosen = suggest(dimensions, tried, 0, lower_is_better=lower_is_better)
        loss = math.log10(float(chosen["learning_rate"]) / 1e-3) ** 2 + (chosen["schedule"] == "cosine")
        sign = 1 if lower_is_better else -1
        tried.append((chosen, None if number % 5 == 4 else sign * loss))
    return tried


def test_suggestions_repeat_and_fit() -> None:
    tried = sampled(12)
    assert tried == sampled(12) and len({tuple(chosen.values()) for chosen, _ in tried}) == 12
    for chosen, _ in tried:
        assert 1e-4 <= float(chosen["learning_rate"]) <= 1e-1 and 0 <= float(chosen["weight_decay"]) <= 0.3
        assert 4 <= int(chosen["batch_size"]) <= 64 and chosen["schedule"] in ("cosine", "linear")
        assert len(chosen["learning_rate"]) <= 10


@pytest.mark.parametrize("lower_is_better", [True, False])
def test_later_trials_are_better_than_the_first(lower_is_better: bool) -> None:
    tried = sampled(30, lower_is_better=lower_is_better)
    early, late = ([abs(value) for _, value in part if value is not None] for part in (tried[:10], tried[20:]))
    assert sum(late) / len(late) < sum(early) / len(early) / 2
