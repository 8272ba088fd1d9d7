"""Quality: equal CPU seconds in turns on the same letters, and the accuracy of greedy decoding."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.scripts.lab.history import quality
from qkv.scripts.lab.history.models import ATTENTION, RNN, build_models
from qkv.scripts.lab.history.quality import Curriculum, TimedTraining, accuracy, train_in_turns


def curriculum(seconds: float) -> Curriculum:
    return Curriculum(seconds, lengths=(2, 3), tokens=48, learning_rate=0.01, seed=0)


def test_a_step_has_the_same_letters_for_all_and_others_than_the_next() -> None:
    batches = [curriculum(1.0).batch(step)["input_ids"] for step in range(20)]
    assert all(torch.equal(batch, curriculum(1.0).batch(step)["input_ids"]) for step, batch in enumerate(batches))
    assert {tuple(batch.shape) for batch in batches} == {(24, 3), (16, 4)}
    assert len({tuple(batch.flatten().tolist()) for batch in batches}) == 20


def test_the_rate_warms_up_and_decays_with_the_seconds() -> None:
    training, rates = TimedTraining(build_models(8, seed=0)[RNN], curriculum(100.0)), []
    for seconds in (0.0, 2.5, 5.0, 50.0, 100.0, 101.0):
        training.spent = seconds
        rates.append(training.learning_rate() / 0.01)
    assert rates == pytest.approx([0.0, 0.5, (1 + math.cos(math.pi / 20)) / 2, 0.5, 0.0, 0.0])


def test_all_get_the_same_seconds_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(quality.time, "process_time", lambda: float(next(ticks)))
    order = []
    step = TimedTraining.step

    def spy(self: TimedTraining) -> None:
        order.append(self.model)
        step(self)

    monkeypatch.setattr(TimedTraining, "step", spy)
    models = {name: model for name, model in build_models(8, seed=0).items() if name in (RNN, ATTENTION)}
    found = train_in_turns(models, curriculum(20.0))
    assert order == 20 * list(models.values())
    for name in models:
        # A second a step, for the clock moves on when it is looked at.
        assert found[name]["cpu_s"] == found[name]["steps"] == 20
        assert [second for second, _ in found[name]["curve"]] == [float(share) for share in range(1, 21)]
        assert found[name]["curve"][-2][1] < found[name]["curve"][0][1]
    assert found[RNN]["tokens"] == found[ATTENTION]["tokens"]


class Reverser:
    """Writes what it should, but for as many first letters as it gets wrong."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong

    def eval(self) -> "Reverser":
        return self

    def generate(self, texts: Tensor, *, min_new_tokens: int, max_new_tokens: int, **others: Any) -> Tensor:
        length = texts.shape[1] - 1
        assert min_new_tokens == max_new_tokens == length and not others["do_sample"] and others["num_beams"] == 1
        written = torch.cat((torch.zeros_like(texts[:, :1]), texts[:, :length].flip(1)), 1)
        written[:, 1 : 1 + self.wrong] += 1
        return written


@pytest.mark.parametrize(("wrong", "expected"), [(0, 1.0), (1, 0.75), (4, 0.0)])
def test_accuracy_counts_letters_in_their_positions(wrong: int, expected: float) -> None:
    model: Any = Reverser(wrong)
    assert accuracy(model, length=4, tokens=12, seed=5) == expected
