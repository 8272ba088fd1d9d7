"""Attention through all layers of a stack: rollout, flow and relevance.

Shapes: B batch, T tokens, S keys of cross-attention, H heads.
"""

from collections.abc import Sequence

import networkx
import torch
from torch import Tensor

# Of the same attention a share passes by every layer on the residual connection.
RESIDUAL = 0.5


def with_residual(weights: Tensor) -> Tensor:
    """Return the mean over heads, half of it the token itself: (B, H, T, T) -> (B, T, T), rows of sum 1.

    Source: Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers, §3, https://arxiv.org/abs/2005.00928
    """
    mean = weights.mean(1)
    mixed = (1 - RESIDUAL) * mean + RESIDUAL * torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
    return mixed / mixed.sum(-1, keepdim=True)


def attention_rollout(weights: Sequence[Tensor]) -> Tensor:
    """Multiply the attention of layers, first to last: how much of each token reaches another by all paths.

    Source: Abnar & Zuidema 2020, §3, eq. 1, https://arxiv.org/abs/2005.00928
    Shapes: layers of (B, H, T, T) -> (B, T, T)
    """
    rolled = with_residual(weights[0])
    for layer in weights[1:]:
        rolled = with_residual(layer) @ rolled
    return rolled


def attention_flow(weights: Sequence[Tensor], queries: Sequence[int]) -> Tensor:
    """Compute the maximum flow from tokens of the last layer to each token of the input; rows have the sum 1.

    Attention is the capacity of an edge between two layers, so what a path carries is its narrowest edge and not a
    product. Each number is a problem of its own over all layers: ask for few queries.

    Source: Abnar & Zuidema 2020, §3, attention flow, https://arxiv.org/abs/2005.00928
    Shapes: layers of (B, H, T, T) -> (B, len(queries), T)
    """
    layers = torch.stack([with_residual(layer) for layer in weights], dim=1)
    return torch.stack([row_flow(row, queries) for row in layers])


def row_flow(layers: Tensor, queries: Sequence[int]) -> Tensor:
    """Compute the flow in one row of a batch: (layers, T, T) -> (len(queries), T)."""
    graph = networkx.DiGraph()
    for layer, query, key in layers.nonzero().tolist():
        graph.add_edge((layer + 1, query), (layer, key), capacity=float(layers[layer, query, key]))
    flows = layers.new_zeros(len(queries), layers.shape[-1])
    for row, query in enumerate(queries):
        for key in range(layers.shape[-1]):
            if graph.has_node((0, key)):
                flows[row, key] = networkx.maximum_flow_value(graph, (len(layers), query), (0, key))
    return flows / flows.sum(-1, keepdim=True)


def mean_relevance(products: Tensor) -> Tensor:
    """Return the mean over heads of what adds to the target: (B, H, T, S) -> (B, T, S).

    Source: Chefer et al. 2021, Generic Attention-model Explainability, §3.1, eq. 5, https://arxiv.org/abs/2103.15679
    """
    return products.clamp(min=0).mean(1)


def self_relevance(products: Sequence[Tensor]) -> Tensor:
    """Return how relevant each token is to each, by gradients times attention of layers: (B, H, T, T) -> (B, T, T).

    Source: Chefer et al. 2021, §3.1, eq. 6, https://arxiv.org/abs/2103.15679
    """
    relevance = identity(products[0])
    for layer in products:
        relevance = relevance + mean_relevance(layer) @ relevance
    return relevance


def cross_relevance(own: Sequence[Tensor], crossed: Sequence[Tensor], memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return the relevance of a decoder's tokens, and of memory, to each of its tokens.

    Source: Chefer et al. 2021, §3.1, eq. 6, 7 and 10, https://arxiv.org/abs/2103.15679
    Shapes: layers of (B, H, T, T) and (B, H, T, S), memory's own relevance (B, S, S) -> (B, T, T), (B, T, S)
    """
    relevance, of_memory = identity(own[0]), torch.zeros_like(mean_relevance(crossed[0]))
    for layer, cross in zip(own, crossed, strict=True):
        mean = mean_relevance(layer)
        relevance, of_memory = relevance + mean @ relevance, of_memory + mean @ of_memory
        read = mean_relevance(cross) @ normalised(memory)
        of_memory = of_memory + normalised(relevance).transpose(-1, -2) @ read
    return relevance, of_memory


def identity(products: Tensor) -> Tensor:
    """Return the relevance before the first layer, where each token is itself: (B, H, T, T) -> (B, T, T)."""
    size = products.shape[-1]
    return torch.eye(size, dtype=products.dtype, device=products.device).expand(len(products), size, size)


def normalised(relevance: Tensor) -> Tensor:
    """Return relevance whose rows, each token itself apart, have the sum 1: (B, T, T) -> same.

    Source: Chefer et al. 2021, §3.1, eq. 8 and 9, https://arxiv.org/abs/2103.15679
    """
    own = torch.eye(relevance.shape[-1], dtype=relevance.dtype, device=relevance.device)
    rest = relevance - own
    total = rest.sum(-1, keepdim=True)
    return rest / torch.where(total > 0, total, 1) + own
