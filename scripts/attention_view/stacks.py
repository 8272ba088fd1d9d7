"""Attention weights of the layers of one stack, with the positions of their queries and keys, and what sums them up.

Shapes: L layers, H heads, T queries, S keys, one more where some were left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.attention_view.positions import Positions

Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Stack:
    """The weights (L, H, T, S) of a stack; `heads` are numbers, or empty where the mean over heads is all there is.

    `entropy` (L, H), in bits, and `distance` (L, H), in positions, are means over all queries as they were captured;
    of queries and keys of different sequences there is no distance.
    """

    name: str
    layers: list[int]
    heads: list[int]
    queries: Positions
    keys: Positions
    weights: Weights
    entropy: Weights
    distance: Weights | None

    @property
    def is_mean(self) -> bool:
        """True where only the mean over heads is left."""
        return not self.heads

    def mean_over_heads(self) -> "Stack":
        """Return the stack with the mean over its heads."""
        return replace(self, heads=[], weights=self.weights.mean(1, keepdims=True))


def stack_of(name: str, records: Sequence[Any], row: int, queries: Positions, keys: Positions) -> Stack:
    """Put the records of a stack, one for each layer, together for one row of the batch."""
    each = [record.weights[min(row, len(record.weights) - 1)].float().cpu().numpy() for record in records]
    weights = np.stack(each)
    layers, heads = [record.layer for record in records], list(records[0].heads)
    is_own = queries.labels == keys.labels[: len(queries)] and queries.kind == keys.kind != "objects"
    distance = mean_distance(weights, keys) if is_own else None
    return Stack(name, layers, heads, queries, keys, weights, mean_entropy(weights), distance)


def mean_entropy(weights: Weights) -> Weights:
    """Return the entropy of the rows in bits, the mean over queries that attend to something: (L, H, T, S) -> (L, H).

    Source: Shannon 1948, A Mathematical Theory of Communication, §6, https://doi.org/10.1002/j.1538-7305.1948.tb01338.x
    """
    logarithms = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    return mean_over_queries(-(weights * logarithms).sum(-1), weights)


def mean_distance(weights: Weights, positions: Positions) -> Weights:
    """Return how far away the attended keys are, the mean by weight: (L, H, T, S) -> (L, H), T the first of S.

    Patches are as far from each other as in the grid; tokens before the grid are left out.

    Source: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, §4.5, https://arxiv.org/abs/2010.11929
    """
    place = np.arange(weights.shape[-1], dtype=np.float32)
    points = place[:, None]
    if positions.grid is not None:
        weights = weights[:, :, positions.prefix :, positions.prefix :]
        place = place[: weights.shape[-1]]
        points = np.stack((place // positions.grid[1], place % positions.grid[1]), axis=-1)
    own = points[: weights.shape[2]]
    apart = np.sqrt(np.square(own[:, None] - points[None]).sum(-1))
    return mean_over_queries((weights * apart).sum(-1), weights)


def mean_over_queries(values: Weights, weights: Weights) -> Weights:
    """Return the mean over the queries that attend to something; a padded one has zeros: (L, H, T) -> (L, H)."""
    real = weights.sum(-1)
    return values.sum(-1) / np.maximum((real > 0).sum(-1), 1)


def regroup_keys(stack: Stack, keys: Positions, groups: NDArray[np.int64]) -> Stack:
    """Return the stack with other keys, of which each sums a group of the old ones; group -1 is left out.

    Weights that are left out are one last column where `keys` count a rest.
    """
    own = stack.weights[..., : len(groups)]
    grouped = own @ np.eye(len(keys) + 1, dtype=np.float32)[groups][:, : len(keys)]
    if keys.rest:
        rest = stack.weights.sum(-1, keepdims=True) - grouped.sum(-1, keepdims=True)
        grouped = np.concatenate((grouped, np.maximum(rest, 0)), axis=-1)
    return replace(stack, keys=keys, weights=grouped)


def regroup_queries(stack: Stack, queries: Positions, groups: NDArray[np.int64]) -> Stack:
    """Return the stack with other queries, of which each is the mean of a group of the old ones; -1 is left out."""
    member = np.eye(len(queries) + 1, dtype=np.float32)[groups][:, : len(queries)]
    grouped = (member / member.sum(0)).T @ stack.weights
    return replace(stack, queries=queries, weights=grouped)


def regroup(stack: Stack, old: Positions, new: Positions, groups: NDArray[np.int64]) -> Stack:
    """Exchange a sequence of positions wherever the stack has it."""
    queries, keys = stack.queries is old, stack.keys is old
    stack = regroup_keys(stack, new, groups) if keys else stack
    return regroup_queries(stack, new, groups) if queries else stack


def select(stacks: Sequence[Stack], old: Positions, indices: Sequence[int], *, rest: bool) -> list[Stack]:
    """Return stacks with some of the positions of a sequence; of padding there is no rest."""
    new = old.select(indices, rest=len(old) - len(indices) if rest else 0)
    groups = np.full(len(old), -1)
    groups[list(indices)] = np.arange(len(indices))
    return [regroup(stack, old, new, groups) for stack in stacks]
