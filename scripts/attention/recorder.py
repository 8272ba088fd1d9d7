"""Record the attention of one layer while its model runs.

Shapes: B batch, T queries, S keys, H heads, K head_dim; h heads and q queries asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.module_tracker import ModuleTracker

from qkv.scripts.attention.layers import AttentionLayer, Indices, check_indices, existing
from qkv.scripts.attention.records import AttentionRecord, CapturedAttention
from qkv.scripts.attention.weights import (
    AttentionCall,
    Layout,
    attention_scores,
    attention_weights,
)

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
# Backends whose masks tell what each query sees.
BACKENDS = ("eager", "sdpa", "flex_attention")
# `is_bw` is true in a backward pass, where a checkpointed layer runs again.
TRACKER = ModuleTracker()


def check_backend(backend: str, *, is_batching: bool = False) -> None:
    """Raise ValueError for a backend whose masks do not tell what each query sees."""
    if is_batching or backend not in BACKENDS:
        what = "continuous batching" if is_batching else f"attn_implementation={backend!r}"
        raise ValueError(
            f"{what} does not tell which keys a query sees; capture with {', '.join(BACKENDS)} by "
            "model.set_attn_implementation, and generate"
        )


@dataclass(frozen=True)
class Wanted:
    """The rows that are captured of a layer, and whether their scores are, too."""

    heads: Indices
    queries: Indices
    scores: bool


class Recorder:
    """Record the attention of one layer whose weights follow from the call of an attention function."""

    def __init__(self, layer: AttentionLayer, wanted: Wanted, captured: CapturedAttention) -> None:
        self.layer, self.wanted, self.captured, self.step = layer, wanted, captured, 0

    def attend(self, attend: AttentionFunction, backend: str, module: nn.Module, *given: Any, **options: Any) -> Any:
        """Call an attention function of a backend, and record the rows that are asked for."""
        mixed, weights = attend(module, *given, **options)
        check_backend(backend, is_batching=options.get("cache") is not None)
        if not TRACKER.is_bw:
            self.record(self.read(module, *given, backend=backend, **options))
        return mixed, weights

    def read(self, module: nn.Module, *given: Any, backend: str, **options: Any) -> AttentionCall:
        """Read the arguments of an attention function."""
        return AttentionCall.of(module, *given, backend=backend, **options)

    def count_queries(self, call: AttentionCall) -> int:
        """Return the number of queries in a row as the caller gave it, padding included."""
        return call.query.shape[2]

    def lay_out(self, call: AttentionCall, queries: Tensor) -> Layout:
        """Divide a call into the parts in which its queries read."""
        return Layout.of(call, queries)

    @torch.no_grad()
    def record(self, call: AttentionCall) -> None:
        """Compute the rows that are asked for, and record them."""
        num_heads, device = call.query.shape[1], call.query.device
        record = self.start(num_heads, self.count_queries(call))
        heads = torch.tensor(record.heads, device=device)
        layout = self.lay_out(call, torch.tensor(record.queries, dtype=torch.long, device=device))
        record.weights = layout.assemble(lambda part: attention_weights(part.call, heads, part.own))
        if self.wanted.scores:
            record.scores = layout.assemble(lambda part: attention_scores(part.call, heads, part.own), -torch.inf)

    def start(self, num_heads: int, num_queries: int) -> AttentionRecord:
        """Add a record of this layer's next forward, its weights not yet there."""
        wanted, layer, counts = self.wanted, self.layer, (num_heads, num_queries)
        check_indices("heads", wanted.heads, num_heads)
        check_indices("queries", wanted.queries, num_queries)
        indices = existing(wanted.heads, num_heads), existing(wanted.queries, num_queries)
        record = AttentionRecord(layer.stack, layer.number, self.step, *indices, *counts, torch.empty(0))
        self.captured.append(record)
        self.step += 1
        return record
