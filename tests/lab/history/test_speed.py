"""Times: in turns and over the Transformer's of the same turn, on equal work; growth by the exponent of the length."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.scripts.lab.history import speed
from qkv.scripts.lab.history.models import COMPARED, RNN, TRANSFORMER
from qkv.scripts.lab.history.speed import TimedStep, growth, saved_bytes, time_steps

BUILT = {name: build(8) for name, build in COMPARED.items()}


def test_ratios_are_of_the_same_turn_and_turns_change_about(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    seconds = itertools.count(1)
    names = {BUILT[name].num_parameters(): name for name in (RNN, TRANSFORMER)}

    def timed(self: TimedStep, batch: dict[str, Tensor]) -> float:
        order.append(names[self.model.num_parameters()])
        return float(next(seconds))

    monkeypatch.setattr(TimedStep, "seconds", timed)
    found = time_steps({name: BUILT[name] for name in (RNN, TRANSFORMER)}, [3], tokens=6, turns=2)
    # The first turn, which warms up, counts for nothing.
    assert order == [RNN, TRANSFORMER, TRANSFORMER, RNN, RNN, TRANSFORMER]
    assert found[RNN]["seconds"] == [(4 + 5) / 2] and found[TRANSFORMER]["seconds"] == [(3 + 6) / 2]
    assert found[RNN]["over"] == [[5 / 6, (4 / 3 + 5 / 6) / 2, 4 / 3]]
    assert found[TRANSFORMER]["over"] == [[1.0, 1.0, 1.0]]


def test_a_step_with_other_targets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scored, before = TimedStep.scored, BUILT[RNN].lm_head.weight.clone()

    def shorter(self: Any, batch: dict[str, Tensor]) -> tuple[int, ...]:
        short = {name: tensor[:, 1:] for name, tensor in batch.items()}
        return scored(self, short if self.model.config.model_type == "qkv_recurrent" else batch)

    monkeypatch.setattr(TimedStep, "scored", shorter)
    with pytest.raises(RuntimeError, match="not the same work"):
        time_steps({name: BUILT[name] for name in (RNN, TRANSFORMER)}, [2], tokens=4, turns=1)
    assert torch.equal(BUILT[RNN].lm_head.weight, before)  # copies are timed, for the models are to learn yet


def test_what_is_kept_is_counted_once() -> None:
    hidden = torch.randn(1, 5, 3)
    assert saved_bytes(lambda given: given.exp(), hidden) == 4 * 5 * 3
    assert saved_bytes(lambda given: given * given, hidden) == 4 * 5 * 3
    assert saved_bytes(lambda given: given + 1, hidden) == 0


def test_growth_is_an_exponent_in_the_length() -> None:
    assert growth([[1, 7.0], [10, 5.0], [20, 20.0]]) == 2.0
    assert growth([[8, 3.0], [16, 6.0]]) == 1.0


def test_layers_alone_keep_what_their_kernels_keep() -> None:
    found = speed.measure_layers(8, [64, 128], turns=1)
    assert growth(found["attention, eager"]["bytes"]) > 1.5 > 1.2 > growth(found["attention, sdpa"]["bytes"])
    assert growth(found["LSTM"]["bytes"]) < 1.05
    assert all(second > 0 for curves in found.values() for _, second in curves["seconds"])
