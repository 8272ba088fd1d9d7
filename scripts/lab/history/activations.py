"""Measure activations and gradients by layer, with and without residual connections and norms.

Shapes: B batch, T tokens, D hidden_size.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv import QkvEncoderConfig, QkvEncoderModel
from qkv.modeling.normalization import Residual

BOTH, NEITHER = "residual and norm", "neither"
LAYERS = 6


# By variant: whether the sum x + f(x) and its norm stay, and whether the norm stands in front.
VARIANTS: dict[str, tuple[bool, bool, bool]] = {
    BOTH: (True, True, False),
    "residual, norm in front": (True, True, True),
    "residual alone": (True, False, False),
    "norm alone": (False, True, False),
    NEITHER: (False, False, False),
}


def measure_activations(width: int) -> dict[str, dict[str, Any]]:
    """Measure mean and deviation of the input and of each layer's output, and the gradient there, by variant.

    Inputs are drawn from a normal distribution; weights are initialised with a deviation of 1 / √D, which keeps a
    vector's length in a linear map, or with BERT's 0.02. Gradient norms are relative to that at the last layer.
    """
    starts = {"1/√d": width**-0.5, "0.02": 0.02}
    return {
        f"{name}, {start}": by_layer(build(name, width, deviation))
        for start, deviation in starts.items()
        for name in VARIANTS
    }


def build(variant: str, width: int, deviation: float) -> QkvEncoderModel:
    """Build an encoder with the residual connections of a variant."""
    sums, norms, norm_first = VARIANTS[variant]
    torch.manual_seed(0)
    config = QkvEncoderConfig(
        hidden_size=width, num_hidden_layers=LAYERS, num_attention_heads=4, vocab_size=2, position="none",
        hidden_act="relu", norm_first=norm_first, final_norm=False, initializer_range=deviation,
    )  # fmt: skip
    model = QkvEncoderModel(config).eval()
    for residual in (module for module in model.modules() if isinstance(module, Residual)):
        residual.norm = residual.norm if norms else nn.Identity()
        if not sums:
            # No field of the config: nobody needs such a stack.
            residual.forward = partial(norm_alone, residual)  # type: ignore[method-assign]
    return model


def norm_alone(residual: Residual, hidden: Tensor, branch: Tensor) -> Tensor:
    """Leave the sum out: norm(f(x))."""
    normed: Tensor = residual.norm(branch)
    return normed


def by_layer(model: QkvEncoderModel) -> dict[str, Any]:
    """Measure means, deviations and gradient norms from the input on, layer by layer."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 32, model.config.hidden_size, generator=random, dtype=torch.float64).requires_grad_()
    states = [hidden]
    for layer in model.layers:
        layer.register_forward_hook(lambda module, inputs, output: states.append(output))
    last = model.double()(inputs_embeds=hidden).last_hidden_state
    direction = torch.randn(last.shape, generator=random, dtype=last.dtype)
    gradients = torch.autograd.grad((last * direction).sum(), states)
    norms = [float(gradient.norm() / gradients[-1].norm()) for gradient in gradients]
    return {
        "mean": [float(state.detach().mean()) for state in states],
        "deviation": [float(state.detach().std()) for state in states],
        "gradient": norms,
    }
