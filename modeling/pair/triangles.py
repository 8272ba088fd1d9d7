"""Multiplications that update a pair by the two others of each triangle.

Shapes: B batch, L residues, C width of a pair.
"""

from torch import Tensor, nn

from ...configuration.configuration_stack import StackConfig
from ..attention import Gate
from ..normalization import NORMS


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
