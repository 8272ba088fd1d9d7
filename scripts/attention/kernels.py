"""Attention weights of kernels that never look at a pair of tokens, and of global tokens.

Shapes: B batch, T queries, S keys, M global tokens, H heads, K head_dim; h heads and q queries asked for.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.modeling.kernels.global_attention import GlobalRows
from qkv.modeling.kernels.linear import Features, group_features, map_features
from qkv.modeling.position.hooks import apply_rotation
from qkv.scripts.attention.weights import AttentionCall, Layout


def linear_features(module: Any, given: dict[str, Any]) -> Features:
    """Return the features that linear attention makes of its inputs, self-attention or cross-attention.

    ValueError where earlier keys are in the state of a cache, which no longer holds them one by one.
    """
    hidden, mask, memory = (given.get(name) for name in ("hidden", "attention_mask", "memory"))
    position: Any = given.get("position")
    cache: Any = given.get("past_key_values")
    if memory is None and cache is not None and cache.get_seq_length(module.layer_idx) > given["hidden"].shape[1]:
        raise ValueError(
            "kernel='linear' keeps a state in past_key_values, and not the keys of earlier tokens, whose weights are "
            "unknown; capture a forward over all tokens with use_cache=False"
        )
    read, added = (hidden, position.query_key) if memory is None else (memory, position.memory_key)
    own = hidden if position.query_key is None else hidden + position.query_key
    key = module.key(read if added is None else read + added)
    query = module.placed_query(hidden, position) if memory is None else module.query(own)
    with torch.autocast(query.device.type, enabled=False):
        mapped = map_features(module.config, query), map_features(module.config, key, mask)
        return group_features(*mapped, module.value(read), position.rotation if memory is None else None)


def linear_rows(features: Features, mask: Any, heads: Tensor, places: Tensor, *, causal: bool) -> Tensor:
    """Return rows of the weights of linear attention: (B, h, q, S).

    Source: Katharopoulos et al. 2020, §3.2, eq. 4, https://arxiv.org/abs/2006.16236
    """
    query, rotated = (each[..., places, :] for each in (features.query, features.rotated_query))
    keys = torch.arange(features.key.shape[-2], device=places.device)
    seen = keys[None] <= places[:, None] if causal else torch.ones(len(places), len(keys), dtype=torch.bool)
    seen = seen.to(places.device)
    if mask is not None and mask.documents is not None:
        own = mask.documents.index_select(1, places)
        seen = seen & (own[:, None, None, :, None] == mask.documents[:, None, None, None])
    normaliser = (query @ features.key.transpose(-1, -2) * seen).sum(-1, keepdim=True)
    scores = rotated @ features.rotated_key.transpose(-1, -2) * seen
    return (scores / torch.where(normaliser > 0, normaliser, 1)).flatten(1, 2).index_select(1, heads)


def global_call(module: Any, given: dict[str, Any]) -> tuple[AttentionCall, GlobalRows]:
    """Return the call by which global tokens attend with projections of their own, and where their rows go.

    Source: Beltagy et al. 2020, Longformer, §3.1, https://arxiv.org/abs/2004.05150
    """
    hidden, position, project = given["hidden"], given["position"], module.global_projections
    rows = given["global_tokens"].rows(hidden, position.read)
    chosen = torch.take_along_dim(hidden, rows.inputs[..., None], dim=1)
    turned = None if position.rotation is None else rows.rotation(position.rotation)
    query, key = apply_rotation(project.query(chosen), project.key(hidden), turned)
    return AttentionCall(query, key, project.value(hidden), rows.mask, module.scaling, is_causal=False), rows


def write_global_rows(weights: Tensor, own: Tensor, rows: GlobalRows, layout: Layout) -> None:
    """Put the rows of global tokens (B, h, M, S) in place of those that all tokens have: (B, h, q, S).

    Without padding, `own` is of all real tokens in one row, of which a token sees those of its document.
    """
    for part in layout.parts:
        start = part.queries.start or 0
        for row in range(len(rows.outputs)):
            batch = row if part.batch is None else part.batch
            same = (rows.outputs[row][None] == start + part.own[:, None]) & rows.chosen[row][None]
            for place, number in same.nonzero().tolist():
                weights[batch, :, part.rows[place], part.columns] = own[row, :, number, part.queries]
