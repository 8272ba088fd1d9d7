"""Attention weights of the layers of one stack, their entropy and distance, and their reduction to the size of a page.

Shapes: L layers, H heads, T queries, S keys, one more where some were left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.scripts.attention.statistics import attention_distance, attention_entropy, mean_of_queries
from qkv.scripts.attention_view.positions import Positions

Weights = NDArray[np.float32]
Groups = NDArray[np.int64]
MOST = 600_000  # weights in a page, a byte each before it is compressed
POSITIONS = 600  # of a sequence that are shown one by one
EVEN = 5  # times the weight of even attention, where colour scales end at the earliest


@dataclass(frozen=True, eq=False)
class Stack:
    """The weights (L, H, T, S) of a stack; without `heads` they are means over heads.

    `entropy` (L, H), in bits, and `distance` (L, H), in positions, are means over all queries as they were captured;
    queries and keys of different sequences, and weights below zero, have no distance.
    """

    name: str
    layers: list[int]
    heads: list[int]
    queries: Positions
    keys: Positions
    weights: Weights
    entropy: Weights
    distance: Weights | None


def stack_of(name: str, records: Sequence[Any], row: int, queries: Positions, keys: Positions) -> Stack:
    """Put the records of a stack, one for each layer, together for one row of the batch."""
    weights = torch.stack([record.weights[min(row, len(record.weights) - 1)].float().cpu() for record in records])
    layers, heads = [record.layer for record in records], list(records[0].heads)
    is_own = queries.labels == keys.labels[: len(queries)] and queries.kind == keys.kind != "objects"
    distance = mean_distance(weights, keys) if is_own and bool((weights >= 0).all()) else None
    entropy = mean_of_queries(attention_entropy(weights.clamp(min=0)), weights.sum(-1) > 0).nan_to_num().numpy()
    return Stack(name, layers, heads, queries, keys, weights.numpy(), entropy, distance)


def colour_scale(*weights: Weights) -> float:
    """Return the weight of the strongest colour in maps that share a scale: their greatest, rounded up, at most 1.

    At least it is five times the weight of even attention, so that nearly even attention is pale everywhere.
    """
    greatest = max(max(float(each.max(initial=0)), EVEN / max(each.shape[-1], 1)) for each in weights)
    return min(math.ceil(greatest * 100) / 100, 1.0)


def mean_distance(weights: Tensor, positions: Positions) -> Weights:
    """Return the distance of attended keys, the mean over queries: (L, H, T, S) -> (L, H), T the first of S.

    Patches are as far from each other as in the grid; tokens before the grid are left out.
    """
    grid, prefix = positions.grid or (weights.shape[-1],), positions.prefix
    places = torch.cartesian_prod(*map(torch.arange, grid)).view(-1, len(grid))
    distances = attention_distance(weights, places, prefix)
    mean: Weights = mean_of_queries(distances, weights.sum(-1)[..., prefix:] > 0).nan_to_num().numpy()
    return mean


def regroup(stack: Stack, old: Positions, new: Positions, groups: Groups) -> Stack:
    """Exchange a sequence of positions wherever the stack has it; group -1 is left out.

    A new key sums a group of old ones, and the weights of keys left out are one last column where `new` counts a rest.
    A new query is the mean of its group.
    """
    member, weights = np.eye(len(new) + 1, dtype=np.float32)[groups][:, : len(new)], stack.weights
    if stack.keys is old:
        grouped = weights[..., : len(groups)] @ member
        rest = np.maximum(weights.sum(-1, keepdims=True) - grouped.sum(-1, keepdims=True), 0)
        weights = np.concatenate((grouped, rest), axis=-1) if new.rest else grouped
    if stack.queries is old:
        weights = (member / member.sum(0)).T @ weights
    queries, keys = (new if each is old else each for each in (stack.queries, stack.keys))
    return replace(stack, queries=queries, keys=keys, weights=weights)


def select(stacks: Sequence[Stack], old: Positions, indices: Sequence[int], *, rest: bool) -> list[Stack]:
    """Select positions of a sequence in all stacks; keep the others as a rest, or drop them as padding."""
    new = old.select(indices, rest=len(old) - len(indices) if rest else 0)
    groups = np.full(len(old), -1)
    groups[list(indices)] = np.arange(len(indices))
    return [regroup(stack, old, new, groups) for stack in stacks]


def fit(stacks: Sequence[Stack], most: int = MOST) -> tuple[list[Stack], list[str]]:
    """Reduce stacks to the weights that a page holds, and return them with a sentence for every reduction.

    The largest is reduced first: to the mean over its heads, and then its longer sequence to half: frames and patches
    in groups, tokens and objects to the first ones, whose others share a column. Sequences of more than `POSITIONS`
    are always halved.
    """
    made, notes = list(stacks), dict[str, str]()

    def halve(positions: Positions) -> list[Stack]:
        new, groups = halved(positions)
        notes[positions.kind] = note_of(new)
        return [regroup(stack, positions, new, groups) for stack in made]

    while long := [each for stack in made for each in (stack.queries, stack.keys) if len(each) > POSITIONS]:
        made = halve(long[0])
    while sum(stack.weights.size for stack in made) > most:
        largest = max(made, key=lambda stack: stack.weights.size)
        if len(largest.heads) > 1:
            mean = replace(largest, heads=[], weights=largest.weights.mean(1, keepdims=True))
            made = [mean if stack is largest else stack for stack in made]
            notes[largest.name] = (
                f"{largest.name}: the {len(largest.heads)} heads of a layer are shown as their mean, for all would "
                "take more than a page holds; heads= or layers= shows some of them"
            )
        else:
            made = halve(max((largest.queries, largest.keys), key=len))
    return made, list(notes.values())


def halved(positions: Positions) -> tuple[Positions, Groups]:
    """Return a sequence of half the length or a little more, and for each old position the number of its new one."""
    count = len(positions)
    if positions.grid is not None:  # squares of two by two patches
        (rows, columns), prefix, place = positions.grid, positions.prefix, np.arange(count - positions.prefix)
        shape = (math.ceil(rows / 2), math.ceil(columns / 2))
        groups = np.concatenate((np.arange(prefix), prefix + place // columns // 2 * shape[1] + place % columns // 2))
        names = [f"({row}, {column})" for row in range(1, shape[0] + 1) for column in range(1, shape[1] + 1)]
        return replace(positions, labels=positions.labels[:prefix] + names, grid=shape), groups
    if positions.kind == "frames":
        return replace(positions, labels=positions.labels[::2]), np.arange(count) // 2
    kept, numbers = math.ceil(count / 2), np.arange(count)
    return positions.select(range(kept), rest=count - kept), np.where(numbers < kept, numbers, -1)


def note_of(positions: Positions) -> str:
    """Say how a sequence was reduced."""
    count, kind = f"{len(positions):,}", positions.kind
    if kind in ("patches", "frames"):
        return f"Neighbouring {kind} are shown together, {count} in all: their sum as keys, their mean as queries"
    return f"The first {count} {kind} are shown; the weights of the other {positions.rest:,} are one last column"
