"""Experts on a CPU without gradients: one after another, in memory that is used again.

Shapes: N tokens, D hidden_size, k experts of a token.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from ..experts.mixture import Experts

# From so many tokens, and for a single one, the loop was faster than products of groups (8 experts, 2 of a token).
MANY = 256


def plain_or_quick(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Compute experts as their module does, which keeps a graph, where this loop is no stand-in for it."""
    way = one_by_one if is_alone(experts, hidden, weights) else cast(Any, Experts.forward).__wrapped__
    return cast(Tensor, way(experts, hidden, index, weights))


def grouped_or_quick(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Compute experts by transformers' products of groups, where this loop is no stand-in for them, or slower."""
    quick = not 1 < len(hidden) < MANY and is_alone(experts, hidden, weights)
    return (one_by_one if quick else ALL_EXPERTS_FUNCTIONS["grouped_mm"])(experts, hidden, index, weights)


def is_alone(experts: Any, hidden: Tensor, weights: Tensor) -> bool:
    """Return whether no gradient, compiler, cast or other process takes part, on a CPU."""
    if torch.is_grad_enabled() or hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    alike = hidden.dtype == weights.dtype == experts.down_proj.dtype and not torch.is_autocast_enabled("cpu")
    return alike and not experts._is_expert_parallel


def one_by_one(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Compute the experts that tokens were sent to, and no others: (N, D), 2 x (N, k) -> (N, D)."""
    single, chosen = len(hidden) == 1, index.flatten()
    if single:
        work, rows = [(number, 1) for number in chosen.tolist()], hidden.expand(len(chosen), -1)
    else:
        order = chosen.argsort(stable=True)
        tokens = order // index.shape[-1]
        work, rows = [*enumerate(chosen.bincount().tolist())], hidden.index_select(0, tokens)
    ups, biases, downs = experts.gate_up_proj, experts.gate_up_proj_bias, experts.down_proj
    mixed, first = torch.empty_like(rows), 0
    for number, count in work:
        if count:
            last = first + count
            units = F.linear(rows[first:last], ups[number], None if biases is None else biases[number])
            torch.mm(experts._apply_gate(units), downs[number].t(), out=mixed[first:last])
            first = last
    if experts.down_proj_bias is not None:
        mixed += experts.down_proj_bias[chosen if single else chosen[order]]
    if single:
        return weights @ mixed
    mixed *= weights.flatten().index_select(0, order)[:, None]
    return torch.zeros_like(hidden).index_add_(0, tokens, mixed)
