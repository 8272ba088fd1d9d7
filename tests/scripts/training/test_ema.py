"""The moving average: the formula, weight by weight, and a model that comes back as it was."""

import pytest
import torch
from torch import nn

from qkv.scripts.training.ema import EMA


def trained(average: EMA, steps: int) -> list[list[torch.Tensor]]:
    """Change the model at random that many times, and say to what."""
    history = []
    for _ in range(steps):
        for weight in average.model.parameters():
            weight.data.add_(torch.randn_like(weight))
        history.append([weight.detach().clone() for weight in average.model.parameters()])
        average.update()
    return history


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_it_is_the_formula(decay: float) -> None:
    model = nn.Linear(3, 2).double()
    average = EMA(model, decay)
    expected = [weight.detach().clone() for weight in model.parameters()]
    for step, weights in enumerate(trained(average, 20), 1):
        own = min(decay, (1 + step) / (10 + step))
        expected = [own * old + (1 - own) * new for old, new in zip(expected, weights, strict=True)]
    assert list(average.weights) == ["weight", "bias"]
    for found, wanted in zip(average.weights.values(), expected, strict=True):
        assert (found - wanted).abs().max() < 1e-12


def test_the_model_has_the_average_for_a_while() -> None:
    model = nn.Linear(3, 2)
    average = EMA(model, 0.9)
    (last,) = trained(average, 1)
    with pytest.raises(KeyError), average.applied():
        assert all(map(torch.equal, model.parameters(), average.weights.values()))
        assert not torch.equal(model.weight, last[0])
        raise KeyError
    assert all(map(torch.equal, model.parameters(), last))
    assert not torch.equal(average.weights["weight"], last[0])
