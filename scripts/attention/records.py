"""Captured attention: the record of one layer in one forward, and all records of a capture.

Shapes: B batch, h heads and q queries asked for, S keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass
class AttentionRecord:
    """Attention of one layer in one forward.

    `stack` is encoder, decoder, cross, text, image, or a path; `step` counts the forwards of the layer, of which
    `generate` makes one for each token; `heads` and `queries` are those asked for, out of `num_heads` and
    `num_queries`. A query that sees nothing, as padding, has zeros.

    Shapes: weights (B, h, q, S)
    """

    stack: str
    layer: int
    step: int
    heads: list[int]
    queries: list[int]
    num_heads: int
    num_queries: int
    weights: Tensor


class CapturedAttention(list[AttentionRecord]):
    """The records of a capture, in the order in which they were computed.

    `depths` are the numbers of layers of the stacks, `outputs` those of the model where `capture_attention` ran it.
    """

    def __init__(self, depths: Mapping[str, int], records: Iterable[AttentionRecord] = ()) -> None:
        super().__init__(records)
        self.depths, self.outputs = dict(depths), None

    @property
    def stacks(self) -> list[str]:
        """The names of the stacks that were captured."""
        return list(dict.fromkeys(record.stack for record in self))

    def select(
        self, stack: str | None = None, layer: int | None = None, step: int | None = None
    ) -> list[AttentionRecord]:
        """Return the records of a stack, a layer (-1 is the model's last) and a forward; None stands for all.

        ValueError where there are none.
        """
        chosen = [
            record
            for record in self
            if stack in (None, record.stack)
            and step in (None, record.step)
            and (layer is None or record.layer == layer % self.depths[record.stack])
        ]
        if not chosen:
            there = sorted({(record.stack, record.layer) for record in self})
            raise ValueError(
                f"stack={stack!r}, layer={layer} and step={step} were not captured, but {there or 'nothing'}; run the "
                "model inside of the context, and name what `layers` asked for"
            )
        return chosen

    def join(self, stack: str | None = None, layer: int = -1) -> AttentionRecord:
        """Join the forwards of one layer, as the steps of `generate`, row by row; missing keys have zeros.

        Shapes: forwards of (B, h, q, S) -> (B, h, sum of q, largest S)
        """
        if stack is None and len(self.stacks) != 1:
            raise ValueError(f"stack=None is ambiguous; give one of {', '.join(self.stacks) or 'none'}")
        records = self.select(stack, layer)
        keys, queries, count = max(record.weights.shape[-1] for record in records), list[int](), 0
        for record in records:
            queries += [count + query for query in record.queries]
            count += record.num_queries
        padded = [F.pad(record.weights, (0, keys - record.weights.shape[-1])) for record in records]
        return replace(records[0], weights=torch.cat(padded, dim=2), step=0, queries=queries, num_queries=count)
