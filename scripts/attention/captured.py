"""Results of captured attention of several layers: rollout, flow, gradients and relevance.

Shapes: B batch, h heads and q queries asked for, S keys, T tokens, H heads, K head_dim.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qkv.scripts.attention.records import AttentionRecord, AttentionRecords
from qkv.scripts.attention.rollout import attention_flow, attention_rollout, cross_relevance, self_relevance
from qkv.scripts.attention.weights import weight_gradients


class CapturedAttention(AttentionRecords):
    """The records of a capture, and what follows from several of them."""

    def rollout(self, stack: str | None = None) -> Tensor:
        """Return attention rollout of a stack with self-attention: (B, T, T), how much of a token reaches each.

        Source: Abnar & Zuidema 2020, §3, https://arxiv.org/abs/2005.00928
        """
        return attention_rollout([record.weights for record in self.whole_stack(stack)])

    def flow(self, stack: str | None = None, queries: Sequence[int] | None = None) -> Tensor:
        """Return attention flow of a stack to each token of the input, for some queries: (B, queries, T).

        Source: Abnar & Zuidema 2020, §3, https://arxiv.org/abs/2005.00928
        """
        weights = [record.weights for record in self.whole_stack(stack)]
        count = weights[0].shape[-1]
        wanted = range(count) if queries is None else [query % count for query in queries]
        return attention_flow(weights, list(wanted))

    def gradients(self, target: Tensor) -> list[Tensor]:
        """Return the gradient of a scalar with respect to the attention weights of each record: (B, h, q, S) each.

        The fused kernels have no weights to derive by; the gradient follows from that of what the weights mix. Needs
        `also=["gradients"]` and a forward with gradients.
        """
        kept = [record.mixed for record in self.records]
        if not kept or any(mixed is None or not mixed.requires_grad for mixed in kept):
            raise ValueError(
                "target cannot be derived by what was captured; give capture_attention also=['gradients'], and run the "
                "model without torch.no_grad() and without reentrant gradient checkpointing"
            )
        given: list[Any] = list(kept)
        of_mixed: Any = torch.autograd.grad(target, given, retain_graph=True, allow_unused=True)
        derived = []
        for record, mixed, gradient in zip(self.records, given, of_mixed, strict=True):
            gradient = torch.zeros_like(mixed) if gradient is None else gradient
            derived.append(record_gradient(record, gradient))
        return derived

    def relevance(self, target: Tensor) -> dict[str, Tensor]:
        """Return how relevant tokens are to a scalar of the output, by gradients times attention, for each stack.

        The row of a token holds what is relevant to it; of an encoder with a class token read that row. `cross` is the
        relevance of memory to the decoder's tokens. For a head, see `gradients` and multiply with the weights.

        Source: Chefer et al. 2021, §3.1, https://arxiv.org/abs/2103.15679
        Shapes: {stack: (B, T, T), "cross": (B, T, S)}
        """
        stacks = {name: self.whole_stack(name, square=name != "cross") for name in self.stacks}
        derived = {id(record): each for record, each in zip(self.records, self.gradients(target), strict=True)}
        products = {
            name: [record.weights * derived[id(record)] for record in records] for name, records in stacks.items()
        }
        relevance = {name: self_relevance(layers) for name, layers in products.items() if name != "cross"}
        if "cross" in products and {"encoder", "decoder"} <= products.keys():
            given = products["decoder"], products["cross"], relevance["encoder"]
            relevance["decoder"], relevance["cross"] = cross_relevance(*given)
        return relevance

    def whole_stack(self, stack: str | None, *, square: bool = True) -> list[AttentionRecord]:
        """Return one record of each layer of a stack; ValueError unless every layer, head and query is there."""
        name = stack or self.only_stack()
        records = self.select(name)
        layers = [record.layer for record in records]
        if layers != list(range(self.depths[name])) or not all(record.is_whole for record in records):
            raise ValueError(
                f"stack={name!r} was captured in layers {layers} of {self.depths[name]}; this needs each layer once, "
                "with all heads and queries: leave layers, heads and queries out, and run one forward"
            )
        if square and any(record.weights.shape[-1] != record.weights.shape[-2] for record in records):
            raise ValueError(
                f"stack={name!r} reads keys of another sequence or of a cache; run one forward over all tokens"
            )
        return records


def record_gradient(record: AttentionRecord, gradient: Tensor) -> Tensor:
    """Return the gradient of a record's weights from that of what they mix: (B, T, H, K) -> (B, h, q, S)."""
    layout: Any = record.layout
    heads = torch.tensor(record.heads, device=gradient.device)
    derived: Tensor = layout.assemble(lambda part: weight_gradients(part, heads, gradient))
    return derived
