"""Self-attention in which global tokens have separate projections.

Shapes: B batch, T tokens, M global tokens of a row, D hidden_size, H heads, K head_dim.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_stack import StackConfig
from ..attention import Attention, SelfAttention
from ..context import NO_CONTEXT, LayerContext
from ..kernel import AttentionFunction, eager_attention
from ..position.hooks import Embedded, Rotation, apply_rotation
from ..position.token_layout import MaskSizes, Packing, lay_out


class GlobalRows(NamedTuple):
    """The rows of attention that global tokens have: their places among a layer's inputs and outputs, and their mask.

    A row of the batch with fewer than others is filled up with tokens that are not `chosen`; no place comes twice.

    Shapes: inputs, outputs and chosen (B, M), mask (B, 1, M, T)
    """

    inputs: Tensor
    outputs: Tensor
    chosen: Tensor
    mask: Tensor

    def read(self, hidden: Tensor) -> Tensor:
        """Return the layer's inputs at global tokens: (B, T, D) -> (B, M, D)."""
        return torch.take_along_dim(hidden, self.inputs[..., None], dim=1)

    def write(self, values: Tensor, own: Tensor) -> Tensor:
        """Write the rows of global tokens into those of all tokens: (B, T, ...), (B, M, ...) -> (B, T, ...)."""
        rest = (1,) * (own.ndim - 2)
        places = self.outputs.unflatten(1, (-1, *rest)).expand_as(own)
        chosen = self.chosen.unflatten(1, (-1, *rest))
        return values.scatter(1, places, torch.where(chosen, own.to(values.dtype), values.gather(1, places)))

    def rotation(self, rotation: Rotation) -> Rotation:
        """Return the rotation of their queries, and of all keys."""
        places = self.outputs[:, None, :, None]
        cosines, sines = (torch.take_along_dim(each, places, dim=2) for each in rotation.query)
        return Rotation((cosines, sines), rotation.key)


class GlobalTokens(NamedTuple):
    """Global tokens of a batch: which are `chosen` (B, T), at most `most` in a row, and the document of each token.

    A token attends to its own document; padding is in none, which is -1: document (B, T).
    """

    chosen: Tensor
    document: Tensor
    most: int

    @classmethod
    def of(
        cls, config: StackConfig, embedded: Embedded, position_ids: Tensor | None, past: Cache | None, **kwargs: object
    ) -> "GlobalTokens | None":
        """Find the first tokens of documents and those that `global_attention_mask` marks; None where none are."""
        hidden, mask = embedded.hidden, real_tokens(embedded.padding_mask, past)
        layout = lay_out(hidden, MaskSizes.of(config, hidden.shape[1], None), mask, Packing.of(position_ids, kwargs))
        chosen = layout.first(config.num_global_tokens)
        if chosen is None:
            return None
        batch, length = hidden.shape[:2]
        document = torch.arange(batch, device=hidden.device)[:, None] * length
        document = (document if layout.documents is None else document + layout.documents).expand(batch, length)
        document = document if layout.padding is None else torch.where(layout.padding, document, -1)
        counted = layout.marked is None and layout.documents is None
        most = min(config.num_global_tokens, length) if counted else length
        # A number of rows is worth reading even from an accelerator: otherwise all rows are computed twice.
        if type(chosen) is Tensor and not (chosen.is_meta or torch.compiler.is_compiling()):
            most = int(chosen.sum(-1).max())
        return cls(chosen.expand(batch, length), document, most) if most else None

    def rows(self, hidden: Tensor, read: Tensor | None) -> GlobalRows:
        """Return their rows among those of a layer, which may have no padding and compute some tokens alone."""
        chosen, document, most = self
        if chosen.shape != hidden.shape[:2]:
            real = document.flatten() >= 0
            chosen, document, most = chosen.flatten()[real][None], document.flatten()[real][None], int(chosen.sum())
        if read is None:
            inputs = outputs = chosen.int().argsort(dim=-1, descending=True, stable=True)[:, :most]
        else:
            inputs = read.expand(len(chosen), -1)
            outputs = torch.arange(len(read), device=hidden.device).expand_as(inputs)
        mask = document.gather(1, inputs)[:, None, :, None] == document[:, None, None]
        return GlobalRows(inputs, outputs, chosen.gather(1, inputs), mask)


def real_tokens(mask: Tensor | dict[str, Tensor] | None, past: Cache | None) -> Tensor | None:
    """Return a mask of real tokens (B, T); ValueError for a finished mask, and where keys were projected before."""
    if past is not None:
        raise ValueError(
            "past_key_values hold no keys for the rows of global tokens, which global_projections=True projects anew; "
            "prepend tokens to the text instead, as prompt tuning does"
        )
    if mask is not None and (isinstance(mask, dict) or mask.ndim != 2):
        shape = "a dict" if isinstance(mask, dict) else f"one of shape {tuple(mask.shape)}"
        raise ValueError(
            f"attention_mask is {shape}, which global_projections=True cannot take for global tokens; mark real tokens "
            "(batch, length)"
        )
    return mask


def check_marks_given(config: QkvConfig, global_attention_mask: Tensor | None) -> None:
    """Check that there are global tokens where stock Longformer would mark the first, or look for separators."""
    if config.global_projections and not config.num_global_tokens and global_attention_mask is None:
        raise ValueError(
            "global_projections=True classifies and answers by global tokens, got no global_attention_mask; give 1 for "
            "the first token or each of the question and 0 for others, or set num_global_tokens"
        )


class GlobalSelfAttention(SelfAttention):
    """Attend as all tokens do; the rows of global tokens are replaced, by separate queries, keys and values.

    Its output is the same linear map, and other tokens read it by its ordinary key and value.

    Source: Beltagy et al. 2020, Longformer, §3.1, "Linear Projections for Global Attention",
        https://arxiv.org/abs/2004.05150
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, T) or None
    """

    def __init__(self, config: StackConfig, layer_index: int) -> None:
        super().__init__(config, layer_index)
        self.global_projections = Attention(config, layer_index)
        del self.global_projections.o_proj, self.global_projections.g_proj

    def forward(self, hidden: Tensor, context: LayerContext = NO_CONTEXT) -> tuple[Tensor, Tensor | None]:
        output, weights = super().forward(hidden, context)
        global_tokens, position = cast("GlobalTokens | None", context.options.get("global_tokens")), context.position
        if global_tokens is None:
            return output, weights
        rows = global_tokens.rows(hidden, context.queries)
        mixed, own = self.attend_globally(hidden, rows, position.rotation, weighted=weights is not None)
        output = rows.write(output, self.output(mixed.flatten(2), rows.read(hidden)))
        if weights is not None and own is not None:
            weights = rows.write(weights.transpose(1, 2), own.transpose(1, 2)).transpose(1, 2)
        return output, weights

    def attend_globally(
        self, hidden: Tensor, rows: GlobalRows, rotation: Rotation | None, *, weighted: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from global tokens to all: (B, T, D) -> (B, M, H, K) and, where asked for, weights (B, H, M, T)."""
        project = self.global_projections
        chosen = rows.read(hidden)
        turned = None if rotation is None else rows.rotation(rotation)
        query, key = apply_rotation(project.query(chosen), project.key(hidden), turned)
        attend: AttentionFunction = eager_attention if weighted else ALL_ATTENTION_FUNCTIONS["sdpa"]
        heads = (query, key, project.value(hidden))
        return attend(self, *heads, rows.mask, scaling=self.scaling, dropout=self.dropout)
