"""The last layer at the tokens that a head reads: their queries alone, with the keys and values of all tokens.

Shapes: B batch, T tokens, S keys, N real tokens of the batch.
"""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from ..checks.inputs import can_read_values
from ..context import LayerContext
from ..execution import Plan, StackInputs, StackParts, plan_of
from ..position.hooks import Embedded, Rotation
from .unpadding import DocumentMask, DocumentPlan, Documents
from .window_attention import WindowMask


class FirstTokensPlan(Plan):
    """Follow another plan, and compute the last layer at the first tokens of each row alone."""

    def __init__(self, plan: Plan, index: Tensor) -> None:
        self.plan, self.index = plan, index
        self.stack, self.config, self.inputs, self.masks = plan.stack, plan.config, plan.inputs, plan.masks
        self.positions = plan.positions

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "Plan | None":
        """Return the plan where a head reads a few first tokens, and nothing looks at others."""
        if inputs.read is None or not can_read_few(stack, inputs):
            return None
        plan = plan_of(stack, replace(inputs, read=None))
        index = read_index(plan, inputs.read)
        return plan if index is None else cls(plan, index)

    @property
    def embedded(self) -> Embedded:
        return self.plan.embedded

    def contexts(self, hidden: Tensor) -> list[LayerContext]:
        *others, last = self.plan.contexts(hidden)
        return [*others, narrowed(last, self.index)]

    def restore(self, hidden: Tensor) -> Tensor:
        return hidden.view(len(self.inputs.embedded.hidden), -1, hidden.shape[-1])


def can_read_few(stack: StackParts, inputs: StackInputs) -> bool:
    """Return True where no hook looks at other tokens, and no padding stands in front."""
    mask, wanted = inputs.embedded.padding_mask, inputs.read
    plain = not (
        inputs.recorded or cast(nn.Module, stack)._forward_hooks or torch.compiler.is_compiling() or stack.config.causal
    )
    if not plain or inputs.backend not in ("sdpa", "eager"):
        return False
    if mask is None:
        return True
    return isinstance(mask, Tensor) and mask.ndim == 2 and can_read_values(mask) and bool(mask[:, :wanted].all())


def read_index(plan: Plan, tokens: int) -> Tensor | None:
    """Return the index (tokens,) or, without padding, (B * tokens,) of the first tokens of each row; None for all."""
    device = plan.inputs.embedded.hidden.device
    if not isinstance(plan, DocumentPlan):
        plain = all(mask is None or isinstance(mask, Tensor) for mask in plan.masks.masks.values())
        return torch.arange(tokens, device=device) if plain else None
    documents = plan.documents
    if len(documents.lengths) != documents.shape[0] or min(documents.lengths) < tokens:
        return None
    starts = torch.tensor([0, *documents.lengths[:-1]], device=device).cumsum(0)
    return (starts[:, None] + torch.arange(tokens, device=device)).flatten()


def narrowed(context: LayerContext, index: Tensor) -> LayerContext:
    """Narrow the context of a layer to queries of some tokens."""
    mask, (rotation, *_) = context.mask, context.position
    bias, tokens = context.position.bias, len(index)
    if isinstance(mask, DocumentMask):
        tokens = len(index) // len(mask.masks)
        first = torch.arange(tokens)[None]
        dense = (each.rows_of(first + each.span.query) if isinstance(each, WindowMask) else each for each in mask.masks)
        own = [None if each is None else each[:, :, :tokens] for each in dense]
        first_of_rows = Documents(torch.arange(len(index)), [tokens] * len(own), (len(own), tokens))
        mask = DocumentMask(first_of_rows, mask.keys, [*own])
    elif isinstance(mask, Tensor):
        mask = mask.index_select(2, index)
    if rotation is not None:
        cosines, sines = (each.index_select(2, index) for each in rotation.query)
        rotation = Rotation((cosines, sines), rotation.key)
    if bias is not None:  # that of documents is of the longest, whose first tokens are those of all
        bias = bias[:, :, :tokens]
    return context._replace(mask=mask, position=context.position._replace(rotation=rotation, bias=bias), queries=index)
