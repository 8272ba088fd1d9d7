"""Record the attention of one layer while its model runs.

Shapes: B batch, T queries, S keys, H heads; h heads and q queries asked for.
"""

from collections.abc import Callable
from threading import local
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.module_tracker import ModuleTracker

from qkv.scripts.attention.layers import AttentionLayer, Indices, choose
from qkv.scripts.attention.records import AttentionRecord
from qkv.scripts.attention.weights import AttentionCall, attention_weights

# Backends whose masks tell the visible keys of each query.
BACKENDS = ("eager", "sdpa", "flex_attention")
# `is_bw` is true in a backward pass, where a checkpointed layer runs again.
TRACKER = ModuleTracker()


def check_backend(backend: str, *, is_batching: bool = False) -> None:
    """Raise ValueError for a backend whose masks do not tell the visible keys of a query."""
    if is_batching or backend not in BACKENDS:
        name = "continuous batching" if is_batching else f"attn_implementation={backend!r}"
        raise ValueError(
            f"{name} does not tell which keys a query sees; capture with {', '.join(BACKENDS)} by "
            "model.set_attn_implementation, and generate"
        )


class Place(NamedTuple):
    """The place of a document in its batch: its row, the places of its queries and keys, and the shape (B, T, S)."""

    row: int
    queries: Tensor
    keys: Tensor
    shape: tuple[int, int, int]


class Recorder(local):
    """Make one record of each forward of a layer from the calls of its attention function.

    `wanted` are heads and queries; `keep` is called with every record. Each thread has attributes of its own, so that
    forwards in several threads do not mix.
    """

    def __init__(
        self, layer: AttentionLayer, wanted: tuple[Indices, Indices], keep: Callable[[AttentionRecord], None]
    ) -> None:
        self.layer, self.wanted, self.keep, self.step = layer, wanted, keep, 0
        # Weights, the place of a document, and the numbers of their rows among the selected queries.
        self.parts: list[tuple[Tensor, Place | None, Tensor]] = []

    def count(self, *counts: int) -> tuple[Tensor, ...]:
        """Choose among the heads and queries of a forward; ValueError for an index that does not exist."""
        names = zip(("heads", "queries"), self.wanted, counts, strict=True)
        self.heads, self.queries = (choose(*each) for each in names)
        self.counts = counts
        return torch.tensor(self.heads, dtype=torch.long), torch.tensor(self.queries, dtype=torch.long)

    @torch.no_grad()
    def add(self, call: AttentionCall, place: Place | None = None) -> None:
        """Compute the selected rows of a call."""
        indices = self.count(call.query.shape[1], call.query.shape[2] if place is None else place.shape[1])
        heads, queries = (each.to(call.query.device) for each in indices)
        rows = own = queries
        if place is not None:
            rows, own = (queries[:, None] == place.queries).nonzero().unbind(1)
        self.parts.append((attention_weights(call, heads, own), place, rows))

    def joined(self, rows: int = 1) -> Tensor:
        """Join documents to their batch, or columns of a grid of `rows` rows, to weights of (B, h, q, S)."""
        parts, self.parts = self.parts, []
        whole, place, _ = parts[0]
        if place is None:
            return torch.cat([each.unflatten(0, (rows, -1)) for each, *_ in parts], dim=1).flatten(0, 1)
        batch, _, keys = place.shape
        whole = whole.new_zeros(batch, len(self.heads), len(self.queries), keys)
        for weights, where, index in parts:
            assert where is not None  # all of them are documents
            whole[where.row][:, index[:, None], where.keys] = weights[0]
        return whole

    def append(self, weights: Tensor) -> None:
        """Keep the record of a forward."""
        layer = self.layer
        record: Any = (layer.stack, layer.number, self.step, self.heads, self.queries, *self.counts, weights)
        self.keep(AttentionRecord(*record))
        self.step += 1
