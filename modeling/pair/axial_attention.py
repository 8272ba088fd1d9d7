"""Attention along the rows or columns of a grid: of pairs, or of an alignment.

Shapes: B batch, I rows, J columns, L residues, D width, H heads, C width of a pair.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...configuration.configuration_stack import StackConfig
from ..attention import SelfAttention
from ..context import NO_CONTEXT, LayerContext
from ..normalization import NORMS
from ..position.hooks import PositionState

Computed = tuple[Tensor, Tensor | None]


def in_chunks(compute: Callable[[Tensor], Computed], rows: Tensor, size: int) -> Computed:
    """Compute a few rows at a time, and again in the backward pass; an exported graph computes all at once.

    Shapes: rows (B, I, ...) -> outputs of `compute`, joined along the second dimension
    """
    if torch.compiler.is_exporting() or rows.shape[1] <= size:
        return compute(rows)
    parts = rows.split(size, dim=1)
    if torch.is_grad_enabled():
        outputs = [checkpoint(compute, part, use_reentrant=False) for part in parts]
    else:
        outputs = [compute(part) for part in parts]
    mixed, weights = zip(*outputs, strict=True)
    return torch.cat(mixed, dim=1), None if weights[0] is None else torch.cat(weights, dim=1)


def mask_scores(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Hide padding by a finite bias, without NaN: (B, H, J, J) or None, (B, J) -> (B, H or 1, J or 1, J)."""
    if mask is None:
        return bias
    hidden = ~mask[:, None, None, :]
    if bias is None:
        bias = torch.zeros(hidden.shape, device=hidden.device)
    return bias.masked_fill(hidden, torch.finfo(bias.dtype).min)


def with_bias(context: LayerContext, bias: Tensor | None) -> LayerContext:
    """Return a context that adds a bias to scores."""
    return context._replace(position=PositionState(bias=bias))


class AxialAttention(SelfAttention):
    """Attend within each row of a grid, all rows with the same bias of scores.

    Source: Jumper et al. 2021, AlphaFold 2, supplement, algorithms 7 and 8, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (B, I, J, D) -> same and weights (B, I, H, J, J) or None; one row (B, J, D) -> same, (B, H, J, J) or None
    """

    def forward(  # type: ignore[override]  # a grid and not a sequence
        self, grid: Tensor, context: LayerContext = NO_CONTEXT, *, chunk_size: int
    ) -> tuple[Tensor, Tensor | None]:
        if grid.ndim == 3:
            return super().forward(grid, context)
        bias = context.position.bias

        def attend_rows(rows: Tensor) -> Computed:
            size, row_bias = rows.shape[:2], bias
            if row_bias is not None and size[0] > 1:
                row_bias = row_bias[:, None].expand(-1, size[1], -1, -1, -1).flatten(0, 1)
            mixed, weights = super(AxialAttention, self).forward(rows.flatten(0, 1), with_bias(context, row_bias))
            wanted = weights if context.weights else None
            return mixed.unflatten(0, size), None if wanted is None else wanted.unflatten(0, size)

        return in_chunks(attend_rows, grid, chunk_size)


class PairBias(nn.Module):
    """Compute a bias of the scores of each head from pairs: W norm(z).

    Source: Jumper et al. 2021, supplement, algorithm 7, line 3, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (B, L, L, C) -> (B, H, L, L)
    """

    def __init__(self, pair: StackConfig, heads: int) -> None:
        super().__init__()
        self.norm = NORMS[pair.norm](pair)
        self.proj = nn.Linear(pair.hidden_size, heads, bias=False)

    def forward(self, pair: Tensor) -> Tensor:
        return self.proj(self.norm(pair)).movedim(-1, 1)


class TriangleAttention(nn.Module):
    """Let a pair (i, j) attend to the pairs (i, k) that start at i too, biased by (j, k); or end at j, by (k, i).

    Source: Jumper et al. 2021, supplement, algorithms 13 and 14, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: normalised pairs (B, L, L, C), mask (B, L) or None -> (B, L, L, C)
    """

    def __init__(self, pair: StackConfig, layer_index: int, *, ending: bool) -> None:
        super().__init__()
        self.ending = ending
        self.bias_proj = nn.Linear(pair.hidden_size, pair.num_attention_heads, bias=False)
        self.attention = AxialAttention(pair, layer_index)

    def forward(
        self, pair: Tensor, mask: Tensor | None, context: LayerContext = NO_CONTEXT, *, chunk_size: int
    ) -> Tensor:
        pair = pair.transpose(1, 2) if self.ending else pair
        bias = mask_scores(self.bias_proj(pair).movedim(-1, 1), mask)
        mixed, _ = self.attention(pair, context=with_bias(context, bias), chunk_size=chunk_size)
        return mixed.transpose(1, 2) if self.ending else mixed
