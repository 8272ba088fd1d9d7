"""Heads that predict contacts: residues of a protein that touch when it is folded.

Shapes: B batch, T tokens, L tokens between the first and the last of a row, D hidden_size, N layers times heads.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from ...configuration.configuration_encoder import QkvEncoderConfig
from ..pair.outer_product import OuterProductDifference


def symmetrize(pairs: Tensor) -> Tensor:
    """Add the scores of a pair in both orders: (..., T, T) -> (..., T, T)."""
    return pairs + pairs.transpose(-1, -2)


def average_product_correct(maps: Tensor) -> Tensor:
    """Subtract from each entry of a symmetric map the expectation from its row and column: the rest is of the pair.

    Source: Dunn et al. 2008, APC, https://doi.org/10.1093/bioinformatics/btm604
    Shapes: (..., T, T) -> (..., T, T)
    """
    sums = maps.sum(-1, keepdim=True)
    total = sums.sum(-2, keepdim=True)
    total = total.masked_fill(total == 0, 1)  # where a row has no residues
    return maps - sums * sums.transpose(-1, -2) / total


class AttentionContactHead(nn.Module):
    """Read contacts off the attention maps of all layers by logistic regression.

    Source: Rao et al. 2021, Transformer protein language models are unsupervised structure learners,
        https://doi.org/10.1101/2020.12.15.422761
    Shapes: hidden unused, N / H attention maps (B, H, T, T), residues (B, T) -> (B, T, T)
    """

    reads_attention: ClassVar[bool] = True

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__()
        self.regression = nn.Linear(config.num_hidden_layers * config.num_attention_heads, 1)

    def forward(self, hidden: Tensor, attentions: tuple[Tensor, ...], residues: Tensor) -> Tensor:
        maps = torch.cat(attentions, dim=1)[..., -residues.shape[1] :]  # (B, N, T, T), without keys of a learned prefix
        maps = maps * (residues[:, None, :, None] & residues[:, None, None]).to(maps)
        features = average_product_correct(symmetrize(maps))
        return self.regression(features.movedim(1, -1)).squeeze(-1)


class OuterProductContactHead(nn.Module):
    """Score contacts from the last hidden state, by products and differences that are linear in the score.

    Source: Lin et al. 2023, https://doi.org/10.1126/science.ade2574, whose projections have 64 components
    Shapes: hidden (B, T, D), attention maps and residues unused -> (B, T, T)
    """

    reads_attention: ClassVar[bool] = False

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__()
        self.pairs = OuterProductDifference(config, inner=64, pairs=1)

    def forward(self, hidden: Tensor, attentions: tuple[Tensor, ...] | None, residues: Tensor) -> Tensor:
        return symmetrize(self.pairs(hidden).squeeze(-1))


CONTACT_HEADS: dict[str, Callable[..., nn.Module]] = {
    "attention": AttentionContactHead,
    "outer_product": OuterProductContactHead,
}


def find_residues(attention_mask: Tensor | None, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return which tokens are residues (B, T), all real ones but the first and last of a row, and their places (B, L).

    L is T - 2; places past the residues of a shorter row repeat its last token, which is none.
    """
    batch, length = hidden.shape[:2]
    if attention_mask is None or attention_mask.ndim != 2:
        attention_mask = hidden.new_ones(batch, length)
    real = attention_mask[:, -length:].to(hidden.device, torch.bool)
    count = real.cumsum(-1)
    residues = real & (count > 1) & (count < count[:, -1:])
    order = torch.arange(length, device=hidden.device).where(residues, length - 1).sort(dim=-1).values
    return residues, order[:, : max(length - 2, 0)]


def select_pairs(pairs: Tensor, places: Tensor) -> Tensor:
    """Select the rows and columns of some tokens: (B, T, T), (B, L) -> (B, L, L)."""
    rows = torch.take_along_dim(pairs, places[:, :, None], dim=1)
    return torch.take_along_dim(rows, places[:, None], dim=2)
