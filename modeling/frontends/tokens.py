"""Tokens as vectors: a table, and the scale of its vectors.

Shapes: B batch, T tokens, D hidden_size.
"""

import torch
from torch import Tensor, nn

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import check_input_ids
from ..position.hooks import Embedded
from ..position.token_layout import MaskSizes, Packing, lay_out


class TokenFrontend(nn.Embedding):
    """Look up a vector for each token id, times `embedding_multiplier`, which is rounded as the table is.

    Source: Vaswani et al. 2017, §3.4, https://arxiv.org/abs/1706.03762
    Shapes: input_ids (B, T) -> (B, T, D)
    """

    def __init__(self, config: QkvConfig) -> None:
        super().__init__(config.vocab_size, config.embedding_width)
        # By the name that serving engines look for, which put another table in its place.
        self.embed_scale = config.embedding_multiplier

    def forward(self, input_ids: Tensor) -> Tensor:
        check_input_ids(input_ids, self.num_embeddings)
        hidden = super().forward(input_ids)
        return hidden if self.embed_scale == 1.0 else hidden * rounded(self.embed_scale, hidden.dtype)


def rounded(number: float, dtype: torch.dtype) -> Tensor:
    """Return a number as a dtype holds it; as a tensor of the host it needs no copy to an accelerator."""
    return torch.tensor(number, dtype=dtype, device="cpu")


# The share of tokens that were masked in training: 80% of the 15% that were to be predicted.
TRAINED_MASKED = 0.15 * 0.8


def drop_masked_tokens(
    config: StackConfig, embedded: Embedded, input_ids: Tensor, position_ids: Tensor | None = None, **kwargs: object
) -> Tensor:
    """Take masked tokens for tokens dropped out: zero, with all others scaled as by dropout in training.

    Source: Rives et al. 2021, ESM-1b, supplement, https://doi.org/10.1073/pnas.2016239118, and its code
        (`token_dropout`), https://github.com/facebookresearch/esm
    Shapes: hidden (B, T, D), input_ids (B, T) -> (B, T, D)
    """
    hidden, mask = embedded.hidden, embedded.padding_mask
    real = mask[:, -hidden.shape[1] :] if isinstance(mask, Tensor) and mask.ndim == 2 else None
    layout = lay_out(hidden, MaskSizes.of(config, hidden.shape[1], None), real, Packing.of(position_ids, kwargs))
    masked = input_ids == config.mask_token_id
    real = torch.ones_like(masked) if layout.padding is None else layout.padding
    documents = layout.documents
    kept, all_tokens = (count_by_document(flags, documents) for flags in (real & ~masked, real))
    scaled = hidden.masked_fill(masked[..., None], 0.0) * (1 - TRAINED_MASKED)
    # In a text of masks alone there is nothing to scale.
    return (scaled * (all_tokens / kept.clamp(min=1))[..., None]).to(hidden.dtype)


def count_by_document(flags: Tensor, documents: Tensor | None) -> Tensor:
    """Count the flags (B, T) in the document of each token, or in each row: (B, T) or (B, 1), in single precision."""
    counted = flags.to(torch.float32)
    if documents is None:
        return counted.sum(-1, keepdim=True)
    documents = documents.expand_as(flags)
    return torch.zeros_like(counted).scatter_add(1, documents, counted).gather(1, documents)
