"""One product for queries, keys and values, whose weights stay three parameters and are joined inside the graph.

Shapes: B batch, T tokens, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import SelfAttention
from ..context import LayerContext, Projected, Projection
from ..execution import StackInputs, StackParts
from ..position.hooks import Rotation, apply_rotation, rotate
from .weight_copies import is_stock, joint_bias, side_by_side

# By type of device: the number of tokens of a batch from which one product was measured to be faster. A GPU has no row
# until one was measured: `gpu-clm-train-1024` and `gpu-llama-train-1024` of the lab time it.
LEAST_TOKENS: dict[str, float] = {}


def joint_projection(stack: StackParts, inputs: StackInputs) -> Projection | None:
    """Return the projection by one product where a stack asks for it, or where it was measured to be faster."""
    hidden = inputs.embedded.hidden
    faster = hidden.shape[0] * hidden.shape[1] >= LEAST_TOKENS.get(hidden.device.type, float("inf"))
    return project_together if (faster if stack.one_product is None else stack.one_product) else None


def project_together(attention: SelfAttention, hidden: Tensor, context: LayerContext) -> Projected:
    """Project by one product, unless inputs differ, or a map is adapted, quantized, sharded or watched."""
    linears = (attention.q_proj, attention.k_proj, attention.v_proj)
    same = context.queries is None and context.position.query_key is None and not attention.norm_rotated
    if not same or not all(map(is_stock, linears)):
        return attention.projected(hidden, context)
    bias = joint_bias([(each.weight, each.bias) for each in linears])
    joint = F.linear(hidden, side_by_side([each.weight for each in linears], 0), bias)
    heads, groups, _ = (each.out_features // attention.head_dim for each in linears)
    norms = (attention.q_norm, attention.k_norm) if attention.q_norm is not None else None
    return placed_heads(attention.heads(joint), (heads, groups, groups), norms, context.position.rotation)


def placed_heads(heads: Tensor, sizes: tuple[int, int, int], norms: Any, rotation: Rotation | None) -> Projected:
    """Return normed and rotated queries and keys, and values: (B, H + 2 G, T, K) -> (B, H or G, T, K) each."""
    if rotation is not None and norms is None and rotation.query is rotation.key:
        query_key, value = torch.split_with_sizes(heads, (sizes[0] + sizes[1], sizes[2]), 1)
        query, key = torch.split_with_sizes(rotate(query_key, *rotation.query), sizes[:2], 1)
        return query, key, value
    query, key, value = torch.split_with_sizes(heads, sizes, 1)
    if norms is not None:
        query, key = norms[0](query), norms[1](key)
    return *apply_rotation(query, key, rotation), value
