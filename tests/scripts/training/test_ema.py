"""The moving average: its formula, and a model whose weights come back."""

import pytest
import torch
from torch import nn

from qkv.scripts.training.ema import EMA


@pytest.mark.parametrize("decay", [0.05, 0.999])
def test_average_equals_the_formula(decay: float) -> None:
    model = nn.Linear(3, 2).double()
    average = EMA(model, decay)
    expected = [weight.detach().clone() for weight in model.parameters()]
    for step in range(1, 21):
        for weight in model.parameters():
            weight.data.add_(torch.randn_like(weight))
        average.update()
        rate = min(decay, (1 + step) / (10 + step))
        expected = [
            rate * old + (1 - rate) * new.detach() for old, new in zip(expected, model.parameters(), strict=True)
        ]
    for found, wanted in zip(average.weights.values(), expected, strict=True):
        assert (found - wanted).abs().max() < 1e-12


def test_average_is_applied_within_a_block() -> None:
    model = nn.Linear(3, 2)
    average = EMA(model, 0.9)
    model.weight.data.add_(1.0)
    average.update()
    last = [weight.detach().clone() for weight in model.parameters()]
    with pytest.raises(KeyError), average.applied():
        assert all(map(torch.equal, model.parameters(), average.weights.values()))
        assert not torch.equal(model.weight, last[0])
        raise KeyError
    assert all(map(torch.equal, model.parameters(), last)) and not torch.equal(average.weights["weight"], last[0])
