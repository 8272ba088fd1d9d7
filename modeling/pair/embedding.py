"""The input of blocks: pairs of residues, the result of an earlier pass, and checks of inputs.

Shapes: B batch, S further sequences of an alignment, L residues, D width of a residue, C width of a pair.
"""

import torch
from torch import Tensor, nn

from ...configuration.configuration_pair import QkvPairConfig
from ..checks.inputs import check_padding_mask, check_position_ids, check_range, check_shape
from ..normalization import NORMS

# Residues and pairs after a pass.
Recycled = tuple[Tensor, Tensor]


class PairEmbedding(nn.Module):
    """Start pairs from both residues, their distance in the chain and, where known, in space.

    Source: Jumper et al. 2021, supplement, algorithms 3 to 5, https://doi.org/10.1038/s41586-021-03819-2; the vector of
        pairs with padding, number 0: Lin et al. 2023, ESMFold's code, https://doi.org/10.1126/science.ade2574
    Shapes: residues (B, L, D), positions (B or 1, L), mask (B, L) or None, bins (B, L, L) or None -> (B, L, L, C)
    """

    def __init__(self, config: QkvPairConfig) -> None:
        super().__init__()
        width, self.bins = config.pair_hidden_size, config.relative_position_bins
        self.left = nn.Linear(config.hidden_size, width) if config.pair_embedding else None
        self.right = nn.Linear(config.hidden_size, width, bias=False) if config.pair_embedding else None
        self.relative_positions = nn.Embedding(2 * self.bins + 2, width) if self.bins else None
        self.distances = nn.Embedding(config.num_distance_bins, width) if config.num_distance_bins else None
        self.width = width

    def forward(self, hidden: Tensor, positions: Tensor, mask: Tensor | None, bins: Tensor | None) -> Tensor:
        batch, length = hidden.shape[:2]
        pair = hidden.new_zeros(batch, length, length, self.width)
        if self.left is not None and self.right is not None:
            pair = pair + self.left(hidden)[:, :, None] + self.right(hidden)[:, None]
        if self.relative_positions is not None:
            pair = pair + self.relative_positions(self.relative(positions, mask))
        if self.distances is not None:
            pair = pair + self.distances(torch.zeros_like(pair[..., 0], dtype=torch.long) if bins is None else bins)
        return pair

    def relative(self, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Return numbers of clipped differences of positions, 0 for pairs with padding: (B, L) -> (B, L, L)."""
        difference = positions[:, None] - positions[:, :, None]
        numbers = difference.clamp(-self.bins, self.bins) + self.bins + 1
        return numbers if mask is None else numbers * (mask[:, :, None] & mask[:, None])


class Recycling(nn.Module):
    """Add the normalised result of a pass, at first zeros, to the input of the next, of an alignment to the chain.

    Source: Jumper et al. 2021, supplement, algorithm 32, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: residues (B, L, D) or (B, S, L, D), pairs (B, L, L, C), result (B, L, D), (B, L, L, C) -> residues, pairs
    """

    def __init__(self, config: QkvPairConfig) -> None:
        super().__init__()
        residue, pair = config.residue_stack(), config.pair_stack()
        self.norm, self.pair_norm = NORMS[residue.norm](residue), NORMS[pair.norm](pair)

    def forward(self, hidden: Tensor, pair: Tensor, recycled: Recycled | None) -> tuple[Tensor, Tensor]:
        chain, chain_pair = recycled or (torch.zeros_like(chain_of(hidden)), torch.zeros_like(pair))
        added, pair = self.norm(chain), pair + self.pair_norm(chain_pair)
        if hidden.ndim == 4:
            return torch.cat((hidden[:, :1] + added[:, None], hidden[:, 1:]), dim=1), pair
        return hidden + added, pair


def chain_of(hidden: Tensor) -> Tensor:
    """Return the first sequence of an alignment, or the chain that there is alone: (B, S, L, D) -> (B, L, D)."""
    return hidden[:, 0] if hidden.ndim == 4 else hidden


def real_residues(hidden: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """Return which residues are real (B, L), None where all are."""
    if attention_mask is None:
        return None
    check_padding_mask(attention_mask, hidden, 0, hidden.shape[1])
    return attention_mask.bool()


def place_residues(hidden: Tensor, position_ids: Tensor | None) -> Tensor:
    """Return the places of residues in the chain, counted from 0 without `position_ids`: (B or 1, L)."""
    check_position_ids(hidden, position_ids)
    return torch.arange(hidden.shape[1], device=hidden.device)[None] if position_ids is None else position_ids


def count_passes(config: QkvPairConfig, num_recycles: int | None) -> int:
    """Return the number of passes through all blocks, by default that of the config."""
    if num_recycles:
        check_config(f"num_recycles={num_recycles}", config.num_recycles, "num_recycles >= 1")
    return 1 + (config.num_recycles if num_recycles is None else num_recycles)


def check_config(name: str, holds: object, needed: str) -> None:
    """Raise where an input needs a model with another config."""
    if not holds:
        raise ValueError(f"{name} needs a model that was built with {needed} in its config")


def check_recycled(config: QkvPairConfig, hidden: Tensor, pair: Tensor, recycled: Recycled | None) -> None:
    """Check residues (B, L, D) and pairs (B, L, L, C) of an earlier call, which have to be as its blocks left them."""
    if recycled is None:
        return
    check_config("recycled", config.num_recycles, "num_recycles >= 1")
    # A norm after the last block changes its result.
    check_config("recycled", not config.final_norm, "final_norm=False")
    for name, part, like in zip(("residues", "pairs"), recycled, (chain_of(hidden), pair), strict=True):
        check_shape(f"recycled {name}", part, like.shape, "the chains")


def check_bins(hidden: Tensor, bins: Tensor | None, count: int) -> None:
    """Check numbers of distances (B, L, L), which the config has to know of."""
    if bins is not None:
        check_config("distance_bins", count, "num_distance_bins >= 1")
        check_shape("distance_bins", bins, (*hidden.shape[:2], hidden.shape[1]), "pairs")
        check_range("distance_bins", bins, count, "distances", "set num_distance_bins")


def check_alignment(config: QkvPairConfig, hidden: Tensor, msa_ids: Tensor, mask: Tensor | None) -> None:
    """Check that sequences (B, S, L) are aligned with a chain (B, L, D), and that they reach it."""
    check_config("msa_ids", config.column_attention, "column_attention=True")
    check_shape("msa_ids", msa_ids, (hidden.shape[0], *msa_ids.shape[1:2], hidden.shape[1]), "sequences of the chains")
    if mask is not None:
        check_shape("msa_attention_mask", mask, msa_ids.shape[:2], "sequences")
