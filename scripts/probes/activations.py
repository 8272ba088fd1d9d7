"""Statistics of activations by layer, and of the gradient of the loss with respect to them.

Shapes: B batch, T tokens, N real tokens of a batch, D hidden_size.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.scripts.probes.layers import (
    Batch,
    ModelLayer,
    every_token_computed,
    hidden_of,
    hooked,
    model_layers,
    real_tokens,
    without_cache,
)

Statistics = dict[str, float]


def mean_norm(vectors: Tensor) -> Tensor:
    """Return the mean Euclidean norm of vectors: (N, D) -> ()."""
    return vectors.norm(dim=-1).mean()


def kurtosis(values: Tensor) -> Tensor:
    """Compute the kurtosis of all numbers, their fourth central moment over their variance squared: (...) -> ().

    It is 3 for a normal distribution and grows with outliers, which make a tensor hard to quantise.

    Source: Bondarenko et al. 2023, Quantizable Transformers, §5, https://arxiv.org/abs/2306.12929
    """
    squares = (values.double() - values.double().mean()) ** 2
    return (squares**2).mean() / squares.mean() ** 2


def activation_statistics(vectors: Tensor) -> Statistics:
    """Return the mean norm, the kurtosis and the largest magnitude of a layer's output: (N, D).

    Source: kurtosis and infinity norm: Bondarenko et al. 2023, §5, https://arxiv.org/abs/2306.12929
    """
    return {
        "norm": mean_norm(vectors).item(),
        "kurtosis": kurtosis(vectors).item(),
        "max_abs": vectors.abs().max().item(),
    }


def gradient_statistics(
    model: nn.Module, batch: Batch, masks: Mapping[str, Tensor | None]
) -> dict[tuple[str, int], Statistics]:
    """Return, of the gradient of the loss by each layer's output, the mean norm and the kurtosis over real tokens.

    Weights take no gradient, so that none is kept of them and their `grad` stays as it is. Layers that the loss does
    not depend on are absent, and so are all where the model returns no loss.

    Shapes: masks of stacks (B, T), true where a token is real
    """
    statistics: dict[tuple[str, int], Statistics] = {}

    def collect(layer: ModelLayer, gradient: Tensor) -> None:
        vectors = real_tokens(gradient, masks.get(layer.stack))
        statistics[layer.stack, layer.number] = {
            "gradient_norm": mean_norm(vectors).item(),
            "gradient_kurtosis": kurtosis(vectors).item(),
        }

    def watch(layer: ModelLayer) -> Callable[..., None]:
        def hook(*seen: Any) -> None:
            hidden = hidden_of(seen[2])
            # The first layer's output depends on no weight that takes a gradient.
            hidden.requires_grad_()
            hidden.register_hook(partial(collect, layer))

        return hook

    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(frozen(model))
        stack.enter_context(every_token_computed(model))
        stack.enter_context(hooked({layer.module: watch(layer) for layer in model_layers(model)}))
        loss = getattr(model(**without_cache(model, batch)), "loss", None)
        if loss is not None and loss.requires_grad:
            loss.backward()
    return statistics


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no weight take a gradient meanwhile."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)  # noqa: FBT003
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)  # noqa: FBT003
