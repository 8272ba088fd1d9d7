"""Captured attention: records of one layer in one forward, and all of them.

Shapes: B batch, h heads and q queries asked for, S keys, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.scripts.attention.weights import Layout


@dataclass
class AttentionRecord:
    """Attention of one layer in one forward.

    `stack` is encoder, decoder, cross, text, image, or a path; `step` counts the forwards of the layer, of which
    `generate` makes one for each token; `heads` and `queries` are the numbers of those asked for, out of `num_heads`
    and `num_queries`. A query that sees nothing, as padding, has zeros.

    Shapes: weights (B, h, q, S); scores (B, h, q, S), minus infinity where a key is hidden; norms (B, h, q, S)
    """

    stack: str
    layer: int
    step: int
    heads: list[int]
    queries: list[int]
    num_heads: int
    num_queries: int
    weights: Tensor
    scores: Tensor | None = None
    norms: Tensor | None = None
    mixed: Tensor | None = field(default=None, repr=False)
    layout: Layout | None = field(default=None, repr=False)

    @property
    def is_whole(self) -> bool:
        """True where no head and no query was left out."""
        return len(self.heads) == self.num_heads and len(self.queries) == self.num_queries

    def tensors(self, change: Any) -> "AttentionRecord":
        """Return a record whose weights, scores and norms are changed in the same way."""
        parts = {name: getattr(self, name) for name in ("weights", "scores", "norms")}
        changed: dict[str, Any] = {name: None if each is None else change(each) for name, each in parts.items()}
        return replace(self, **changed)


class AttentionRecords(Sequence[AttentionRecord]):
    """The records of a capture, in the order in which they were computed.

    `outputs` are those of the model where `capture_attention` was given inputs; `depths` are the numbers of layers that
    the stacks have.
    """

    def __init__(self, depths: dict[str, int], records: Sequence[AttentionRecord] = (), outputs: Any = None) -> None:
        self.depths, self.records, self.outputs = depths, list(records), outputs

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> AttentionRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[AttentionRecord]: ...

    def __getitem__(self, index: int | slice) -> AttentionRecord | list[AttentionRecord]:
        return self.records[index]

    @property
    def stacks(self) -> list[str]:
        """The names of the stacks of which something was captured."""
        return list(dict.fromkeys(record.stack for record in self.records))

    def select(
        self, stack: str | None = None, layer: int | None = None, step: int | None = None
    ) -> list[AttentionRecord]:
        """Return the records of a stack, a layer (-1 is the last of the model's) and a forward; None is all of them.

        ValueError where there are none.
        """
        chosen = [
            record
            for record in self.records
            if (stack is None or record.stack == stack)
            and (layer is None or record.layer == layer % self.depths[record.stack])
            and (step is None or record.step == step)
        ]
        if not chosen:
            there = sorted({(record.stack, record.layer) for record in self.records})
            raise ValueError(
                f"stack={stack!r}, layer={layer} and step={step} were not captured, but {there or 'nothing'}; run the "
                "model inside of the context, and name what `layers` asked for"
            )
        return chosen

    def join(self, stack: str | None = None, layer: int = -1) -> AttentionRecord:
        """Put the forwards of one layer under each other, as those of `generate`; rows are filled up with zeros.

        Shapes: forwards of (B, h, q, S) -> (B, h, sum of q, largest S)
        """
        records = self.select(stack or self.only_stack(), layer)
        keys = max(record.weights.shape[-1] for record in records)
        queries, count = [], 0
        for record in records:
            queries += [count + query for query in record.queries]
            count += record.num_queries
        joined: dict[str, Any] = {"mixed": None, "layout": None, "queries": queries, "num_queries": count}
        for name in ("weights", "scores", "norms"):
            parts = [getattr(record, name) for record in records]
            if parts[0] is not None:
                empty = -torch.inf if name == "scores" else 0.0
                parts = [F.pad(part, (0, keys - part.shape[-1]), value=empty) for part in parts]
                joined[name] = torch.cat(parts, dim=2)
        return replace(records[0], step=0, **joined)

    def beams(self, beam_indices: Tensor) -> Self:
        """Return the records of the beams that won: each forward's row is that from which the winner's token came.

        `beam_indices` (N, steps) are those of `generate(..., return_dict_in_generate=True, output_scores=True)`. Rows
        have zeros after a winner's last token. An encoder reads each source once, whose row its winners share.
        """
        rows, won = max(len(record.weights) for record in self.records), []
        for record in self.records:
            shared = rows // len(record.weights)
            if record.step >= beam_indices.shape[1]:
                continue  # a forward after the last token of every winner
            index = beam_indices[:, record.step if shared == 1 else 0].to(record.weights.device)
            chosen, ended = index.clamp(min=0) // shared, (index < 0).view(-1, 1, 1, 1)
            won.append(record.tensors(lambda each, i=chosen, e=ended: each.index_select(0, i).masked_fill(e, 0)))
        return type(self)(self.depths, won)

    def only_stack(self) -> str:
        """Return the stack of which something was captured; ValueError where there are several."""
        if len(self.stacks) != 1:
            raise ValueError(f"stack=None leaves open which is meant; give one of {', '.join(self.stacks) or 'none'}")
        return self.stacks[0]
