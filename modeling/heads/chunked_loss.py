"""The cross-entropy of a linear map's output, a chunk of logits at a time.

Shapes: N tokens, D features, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import Tensor, autograd
from torch.nn import functional as F


class ChunkedCrossEntropy(autograd.Function):
    """Sum the cross-entropy with label smoothing, some rows of logits at a time, which are made once and not kept.

    The loss is summed in single precision at least, which `torch.nn.functional.linear_cross_entropy` does not.

    Source: Hsu et al. 2024, Liger Kernel, §3.2 (FusedLinearCrossEntropy), https://arxiv.org/abs/2410.10989
    Shapes: hidden (N, D), weight (V, D), bias (V,) or None, labels (N,), negative where none is due
        and `how` the number of rows, the smoothing and the bound of logits -> ()
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        how: tuple[int, float, float | None],
    ) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        rows, smoothing, cap = how
        wanted = zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)
        slopes = [torch.zeros_like(cast(Tensor, each)) if due else None for each, due in wanted]
        for first in range(0, len(hidden), rows):
            part, target = hidden[first : first + rows], labels[first : first + rows, None]
            due = (target >= 0).to(hidden.dtype)
            scores, bent = log_probabilities(F.linear(part, weight, bias).to(total.dtype), cap)
            total = total + (loss_of(scores, target.clamp(min=0), smoothing) * due).sum()
            if any(ctx.needs_input_grad):
                slope = slope_of(scores, target.clamp(min=0), smoothing, bent).to(hidden.dtype)
                add_slopes(slopes, first, slope, part, weight, due)
        ctx.save_for_backward(*slopes)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "the loss of labels has no second derivative: compute it from the logits, without labels"
            )
        slopes = [None if slope is None else slope * upstream[0].to(slope.dtype) for slope in ctx.saved_tensors]
        return *slopes, None, None


def log_probabilities(logits: Tensor, cap: float | None) -> tuple[Tensor, Tensor | None]:
    """Return log-probabilities of logits that approach a bound, if any, and the slope of that."""
    if cap is None:
        return logits.log_softmax(-1), None
    bent = torch.tanh(logits / cap)
    return (bent * cap).log_softmax(-1), 1 - bent.square()


def loss_of(scores: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy of log-probabilities (N, V) with targets (N, 1): (N, 1)."""
    loss = (smoothing - 1) * scores.gather(-1, target)
    return loss - smoothing * scores.mean(-1, keepdim=True) if smoothing else loss


def slope_of(scores: Tensor, target: Tensor, smoothing: float, bent: Tensor | None) -> Tensor:
    """Return the gradient of `loss_of` in the logits (N, V), in the memory of the log-probabilities.

    Where logits approach a bound, `bent` (N, V) is the slope of that.
    """
    slope = scores.exp_()
    slope = slope.sub_(smoothing / slope.shape[-1]) if smoothing else slope
    slope = slope.scatter_add_(-1, target, slope.new_full(target.shape, smoothing - 1))
    return slope if bent is None else slope.mul_(bent)


def add_slopes(
    slopes: list[Tensor | None], first: int, slope: Tensor, hidden: Tensor, weight: Tensor, due: Tensor
) -> None:
    """Add the gradients of some tokens, from `first` on, to those of hidden states, weight and bias that are wanted."""
    if slopes[0] is not None:
        slopes[0][first : first + len(hidden)] = slope @ weight * due
    if slopes[1] is not None:
        slopes[1].addmm_(slope.T, hidden * due)
    if slopes[2] is not None:
        slopes[2].addmv_(slope.T, due[:, 0])
