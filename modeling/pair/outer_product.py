"""Products by which residues update their pairs, and pairs each other.

Shapes: B batch, S sequences of an alignment, L residues, D width of a residue, c width of a projection, C of a pair.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...configuration.configuration_stack import StackConfig
from ..attention import Gate
from ..normalization import NORMS
from .axial_attention import in_chunks


class OuterProductMean(nn.Module):
    """Average the outer products of two projections of residues i and j over an alignment, and map them linearly.

    Source: Jumper et al. 2021, AlphaFold 2, supplement, algorithm 10, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (B, S, L, D), mask (B, S, L) or None -> (B, L, L, C)
    """

    def __init__(self, config: StackConfig, inner: int, pairs: int) -> None:
        super().__init__()
        self.norm = NORMS[config.norm](config)
        self.proj = nn.Linear(config.hidden_size, 2 * inner)
        self.pair_proj = nn.Linear(inner * inner, pairs)

    def forward(self, sequences: Tensor, mask: Tensor | None, chunk_size: int) -> Tensor:
        first, second = self.proj(self.norm(sequences)).chunk(2, dim=-1)
        count = torch.full((), float(sequences.shape[1]), device=sequences.device)
        if mask is not None:
            first, second = first * mask[..., None], second * mask[..., None]
            count = mask.any(-1).sum(-1).clamp(min=1)[:, None, None, None]

        def multiply(rows: Tensor) -> tuple[Tensor, None]:
            products = torch.einsum("bisc,bsjd->bijcd", rows, second).flatten(-2)
            return self.pair_proj(products / count.to(products)), None

        return in_chunks(multiply, first.transpose(1, 2), chunk_size)[0]


class OuterProductDifference(nn.Module):
    """Describe each pair of residues by the products and the differences of two projections.

    Source: Lin et al. 2023, Evolutionary-scale prediction of atomic-level protein structure with a language model, and
        its code (`SequenceToPair`), https://doi.org/10.1126/science.ade2574
    Shapes: (B, L, D), or the first of (B, S, L, D) -> (B, L, L, C)
    """

    def __init__(self, config: StackConfig, inner: int, pairs: int) -> None:
        super().__init__()
        self.norm = NORMS[config.norm](config)
        self.proj = nn.Linear(config.hidden_size, 2 * inner)
        self.pair_proj = nn.Linear(2 * inner, pairs)

    def forward(self, hidden: Tensor, mask: Tensor | None = None, chunk_size: int | None = None) -> Tensor:
        hidden = hidden[:, 0] if hidden.ndim == 4 else hidden
        second, first = self.proj(self.norm(hidden)).chunk(2, dim=-1)  # (B, L, c) each
        first, second = first[:, :, None], second[:, None]
        return self.pair_proj(torch.cat((second * first, second - first), dim=-1))


class TriangleMultiplication(nn.Module):
    """Sum over all third residues k: outgoing edges a_ik b_jk, or incoming edges a_ki b_kj, component by component.

    Source: Jumper et al. 2021, supplement, algorithms 11 and 12, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: normalised pairs (B, L, L, C), mask (B, L) or None -> (B, L, L, C)
    """

    def __init__(self, pair: StackConfig, *, incoming: bool) -> None:
        super().__init__()
        self.incoming = incoming
        width = pair.hidden_size
        self.a_proj, self.a_gate = nn.Linear(width, width), Gate(width, width)
        self.b_proj, self.b_gate = nn.Linear(width, width), Gate(width, width)
        self.norm = NORMS[pair.norm](pair)
        self.o_proj, self.o_gate = nn.Linear(width, width), Gate(width, width)

    def forward(self, pair: Tensor, mask: Tensor | None) -> Tensor:
        first = self.a_gate(pair).sigmoid() * self.a_proj(pair)
        second = self.b_gate(pair).sigmoid() * self.b_proj(pair)
        if mask is not None:
            real = (mask[:, :, None] & mask[:, None])[..., None]
            first, second = first * real, second * real
        first, second = first.movedim(-1, 1), second.movedim(-1, 1)  # (B, C, L, L)
        product = first.mT @ second if self.incoming else first @ second.mT
        return self.o_gate(pair).sigmoid() * self.o_proj(self.norm(product.movedim(1, -1)))


OUTER_PRODUCTS: dict[str, Callable[..., nn.Module]] = {"mean": OuterProductMean, "difference": OuterProductDifference}
