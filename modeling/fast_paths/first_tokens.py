"""The last layer at the tokens that a head reads: nobody reads the others, whose keys and values are all it takes.

Shapes: B batch, T tokens, S keys, N real tokens of the batch.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values
from ..masking import DocumentMask, Documents, Mask
from ..position.hooks import PositionState, Rotation
from .unpadding import LayerInputs
from .windows import WindowMask


def tokens_to_read(model: PreTrainedModel, wanted: int | None, padding_mask: Any, given: dict[str, Any]) -> int | None:
    """Return how many first tokens of each row a head reads; None where all are computed.

    That is so where states are recorded or a hook looks at them, and where padding may stand in front.
    """
    recorded = any(
        given.get(name, getattr(model.config, name)) for name in ("output_hidden_states", "output_attentions")
    )
    if wanted is None or recorded or model._forward_hooks or torch.compiler.is_compiling():
        return None
    if padding_mask is None:
        return wanted
    readable = isinstance(padding_mask, Tensor) and padding_mask.ndim == 2 and can_read_values(padding_mask)
    return wanted if readable and bool(padding_mask[:, :wanted].all()) else None


def read_index(config: StackConfig, inputs: LayerInputs, tokens: int | None, implementation: str) -> Tensor | None:
    """Return the index (tokens,) or, without padding, (B * tokens,) of the first tokens of each row; None for all."""
    masks = inputs.masks.masks.values()
    if tokens is None or config.causal or implementation not in ("sdpa", "eager"):
        return None
    device, documents = inputs.embedded.hidden.device, inputs.documents
    if documents is None:
        plain = all(mask is None or isinstance(mask, Tensor) for mask in masks)
        return torch.arange(tokens, device=device) if plain else None
    if len(documents.lengths) != documents.shape[0] or min(documents.lengths) < tokens:
        return None
    starts = torch.tensor([0, *documents.lengths[:-1]], device=device).cumsum(0)
    return (starts[:, None] + torch.arange(tokens, device=device)).flatten()


def read_tokens(mask: Mask, state: PositionState, index: Tensor, tokens: int) -> tuple[Mask, PositionState]:
    """Narrow the mask and the position of the last layer to queries of some tokens."""
    if isinstance(mask, DocumentMask):
        first = torch.arange(tokens)[None]
        dense = (each.rows_of(first) if isinstance(each, WindowMask) else each for each in mask.masks)
        own = [None if each is None else each[:, :, :tokens] for each in dense]
        rows = len(own)
        first_of_rows = Documents(torch.arange(rows * tokens), [tokens] * rows, (rows, tokens))
        mask = DocumentMask(first_of_rows, mask.keys, [*own])
    elif isinstance(mask, Tensor):
        mask = mask.index_select(2, index)
    rotation, bias = state.rotation, state.bias
    if rotation is not None:
        cosines, sines = (each.index_select(2, index) for each in rotation.query)
        rotation = Rotation((cosines, sines), rotation.key)
    if bias is not None:  # that of documents is of the longest, whose first tokens are those of all
        bias = bias[:, :, :tokens]
    return mask, state._replace(rotation=rotation, bias=bias, read=index)
