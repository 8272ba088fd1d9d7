"""Make attention small enough for a page: means over heads, groups of patches and frames, the first tokens."""

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.scripts.attention_view.positions import Positions
from qkv.scripts.attention_view.stacks import Stack, Weights, regroup

BYTES = 600_000  # of the weights in a page, as they stand in it
POSITIONS = 600  # of a sequence that are shown one by one
LEVELS = 255  # steps of a weight


def quantise(weights: Weights) -> tuple[NDArray[np.uint8], Weights, Weights]:
    """Return weights in `LEVELS` steps from the least of their row, at most zero, to the greatest, and these two.

    Softmax has no weight below zero, linear attention with rotations has.

    Shapes: (..., S) -> (..., S), (...), (...)
    """
    least, greatest = np.minimum(weights.min(-1), 0), np.maximum(weights.max(-1), 0)
    width = greatest - least
    shares = (weights - least[..., None]) / np.where(width > 0, width, 1)[..., None]
    return np.rint(shares * LEVELS).astype(np.uint8), least.astype(np.float32), greatest.astype(np.float32)


def packed(values: NDArray[Any]) -> str:
    """Return numbers as compressed bytes in base64, little-endian: what `DecompressionStream("deflate")` reads."""
    return b64encode(zlib.compress(values.astype(values.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def size_of(stack: Stack) -> int:
    """Return the bytes that the weights of a stack take in a page; of many an estimate from some of them."""
    shares, least, greatest = quantise(stack.weights)
    some = shares.reshape(-1)[: 4 * BYTES]
    return round(len(packed(some)) * shares.size / some.size) + len(packed(least)) + len(packed(greatest))


def fit(stacks: Sequence[Stack], most: int = BYTES) -> tuple[list[Stack], list[str]]:
    """Reduce stacks until a page holds them, and return them with a sentence for everything that was done.

    The largest is reduced first: to the mean over its heads, and then its longer sequence to half: frames and patches
    in groups, tokens and objects to the first ones, whose others share a column. Sequences of more than `POSITIONS`
    are halved whatever they take.
    """
    made, notes = list(stacks), dict[str, str]()
    while long := [each for stack in made for each in (stack.queries, stack.keys) if len(each) > POSITIONS]:
        made = with_half(made, long[0], notes)
    sizes = {stack: size_of(stack) for stack in made}
    while sum(sizes.values()) > most:
        largest = max(made, key=lambda stack: sizes[stack])
        if len(largest.heads) > 1:
            made = [stack.mean_over_heads() if stack is largest else stack for stack in made]
            notes[largest.name] = (
                f"{largest.name}: the {len(largest.heads)} heads of a layer are shown as their mean, for all would "
                "take more than a page holds; heads= or layers= shows some of them"
            )
        else:
            made = with_half(made, max((largest.queries, largest.keys), key=len), notes)
        sizes = {stack: sizes[stack] if stack in sizes else size_of(stack) for stack in made}
    return made, list(notes.values())


def with_half(stacks: Sequence[Stack], positions: Positions, notes: dict[str, str]) -> list[Stack]:
    """Return stacks with a sequence of half the length, and say so in the notes."""
    new, groups = halved(positions)
    notes[positions.kind] = note_of(new)
    return [regroup(stack, positions, new, groups) for stack in stacks]


def halved(positions: Positions) -> tuple[Positions, NDArray[np.int64]]:
    """Return a sequence of half the length or a little more, and for each old position the new one that it is in."""
    count = len(positions)
    if positions.grid is not None:
        return pooled_grid(positions)
    if positions.kind == "frames":
        new = replace(positions, labels=positions.labels[::2])
        return new, np.arange(count) // 2
    kept = math.ceil(count / 2)
    groups = np.where(np.arange(count) < kept, np.arange(count), -1)
    return positions.select(range(kept), rest=count - kept), groups


def pooled_grid(positions: Positions) -> tuple[Positions, NDArray[np.int64]]:
    """Return a grid whose patches are squares of two by two, less at its ends."""
    rows, columns = positions.grid or (1, 1)
    prefix, shape = positions.prefix, (math.ceil(rows / 2), math.ceil(columns / 2))
    place = np.arange(rows * columns)
    groups = prefix + place // columns // 2 * shape[1] + place % columns // 2
    names = [f"({1 + row}, {1 + column})" for row in range(shape[0]) for column in range(shape[1])]
    new = replace(positions, labels=positions.labels[:prefix] + names, grid=shape)
    return new, np.concatenate((np.arange(prefix), groups))


def note_of(positions: Positions) -> str:
    """Say what was done to a sequence."""
    if positions.grid is not None:
        rows, columns = positions.grid
        return (
            f"Neighbouring patches are shown together, in {rows} rows and {columns} columns: the sum of their weights "
            "as keys, the mean as queries"
        )
    if positions.kind == "frames":
        return (
            f"Neighbouring frames are shown together, {len(positions)} groups in all: the sum of their weights as "
            "keys, the mean as queries"
        )
    what = "object queries" if positions.kind == "objects" else "tokens"
    return (
        f"The first {len(positions):,} {what} are shown; the weights of the other {positions.rest:,} are one "
        f"last column, their sum"
    )
