"""Activations: each variant is its formula, and what is followed is what the layers give."""

import pytest
import torch

from qkv.modeling.normalization import Residual
from qkv.scripts.lab.history.activations import BOTH, LAYERS, NEITHER, VARIANTS, build, by_layer


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_its_formula(variant: str) -> None:
    model = build(variant, 8, 0.3)
    residuals = [module for module in model.modules() if isinstance(module, Residual)]
    assert len(residuals) == 2 * LAYERS
    hidden = torch.randn(2, 3, 8)
    norm = torch.nn.LayerNorm(8)
    expected = {
        BOTH: norm(hidden + hidden.sin()),
        "residual, norm in front": hidden + norm(hidden).sin(),
        "residual alone": hidden + hidden.sin(),
        "norm alone": norm(hidden.sin()),
        NEITHER: hidden.sin(),
    }
    for residual in residuals:
        torch.testing.assert_close(residual(hidden, residual.input(hidden).sin()), expected[variant])


def test_means_and_deviations_are_those_of_hidden_states() -> None:
    model = build("residual, norm in front", 8, 0.3).double()
    found = by_layer(model)
    hidden = torch.randn(4, 32, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = model(inputs_embeds=hidden, output_hidden_states=True).hidden_states
    assert found["mean"] == pytest.approx([state.mean().item() for state in states])
    assert found["deviation"] == pytest.approx([state.std().item() for state in states])
    assert len(found["gradient"]) == LAYERS + 1 and found["gradient"][-1] == 1.0


def test_gradients_are_over_the_last_layers() -> None:
    """Where nothing happens in a branch, a residual sum hands every gradient on as it is."""
    model = build("residual alone", 8, 0.3)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    found = by_layer(model)
    assert found["gradient"] == pytest.approx([1.0] * (LAYERS + 1))
    assert len(set(found["deviation"])) == 1
