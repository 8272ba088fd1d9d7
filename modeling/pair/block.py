"""One block of a model of pairs, and the outputs of models: residues read pairs, then pairs residues and each other.

Shapes: B batch, S sequences of an alignment, L residues, D width of a residue, C width of a pair.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput

from ...configuration.configuration_pair import QkvPairConfig
from ..context import LayerContext
from ..feed_forward import MLP
from ..kernel import wants_weights
from ..normalization import Residual
from .axial_attention import AxialAttention, PairBias, TriangleAttention, mask_scores, with_bias
from .outer_product import OUTER_PRODUCTS, TriangleMultiplication


@dataclass
class PairOutput(BaseModelOutput):
    """Output of a model of pairs.

    Shapes: last_hidden_state (B, L, D), pair_hidden_state (B, L, L, C), of an alignment msa_hidden_state (B, S, L, D),
    hidden_states of every block (B, L, D) or (B, 1 + S, L, D), attentions (B, H, L, L) or (B, 1 + S, H, L, L)
    """

    pair_hidden_state: Tensor | None = None
    msa_hidden_state: Tensor | None = None


@dataclass
class PairClassifierOutput(ModelOutput):
    """Output of a head on pairs: loss, logits (B, L, L) or (B, L, L, V), and outputs of the model."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    pair_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def pair_output(outputs: PairOutput, logits: Tensor, loss: Tensor | None) -> PairClassifierOutput:
    """Join scores of pairs with outputs of the model."""
    return PairClassifierOutput(loss, logits, outputs.pair_hidden_state, outputs.hidden_states, outputs.attentions)


class SharedDropout(nn.Dropout):
    """Drop the same components in a whole row of pairs, or in a whole column.

    Source: Jumper et al. 2021, supplement, §1.11.6, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: (B, L, L, C) -> (B, L, L, C)
    """

    def __init__(self, probability: float, *, columns: bool) -> None:
        super().__init__(probability)
        self.columns = columns

    def forward(self, pair: Tensor) -> Tensor:
        one = pair[:, :1] if self.columns else pair[:, :, :1]
        return pair * F.dropout(torch.ones_like(one), self.p, self.training)


class PairBlock(GradientCheckpointingLayer):
    """Update residues by attention with a bias from pairs, then pairs by outer products, triangles and a transition.

    Source: Jumper et al. 2021, AlphaFold 2, supplement, algorithm 6, https://doi.org/10.1038/s41586-021-03819-2; with
        one sequence: Lin et al. 2023, ESMFold, https://doi.org/10.1126/science.ade2574
    Shapes: residues (B, L, D) or of an alignment (B, S, L, D), pairs (B, L, L, C) -> same
    """

    def __init__(self, config: QkvPairConfig, layer_index: int, *, updates_pairs: bool = True) -> None:
        super().__init__()
        residue, pair = config.residue_stack(), config.pair_stack()
        self.chunk_size = config.chunk_size
        self.row_bias = PairBias(pair, config.num_attention_heads)
        self.row_attn = AxialAttention(residue, layer_index)
        self.row_attn_residual = Residual(residue, layer_index)
        self.column_attn = AxialAttention(residue, layer_index) if config.column_attention else None
        self.column_attn_residual = Residual(residue, layer_index) if config.column_attention else None
        self.transition, self.transition_residual = MLP(residue), Residual(residue, layer_index)
        self.updates_pairs = updates_pairs
        if updates_pairs:
            self.add_pair_modules(config, layer_index)

    def add_pair_modules(self, config: QkvPairConfig, layer_index: int) -> None:
        """Add the modules that update pairs; a last block lacks them where no pairs are read after it."""
        residue, pair = config.residue_stack(), config.pair_stack()
        self.outer_product = OUTER_PRODUCTS[config.outer_product](
            residue, config.outer_product_size, config.pair_hidden_size
        )
        self.outgoing = TriangleMultiplication(pair, incoming=False)
        self.incoming = TriangleMultiplication(pair, incoming=True)
        self.starting = TriangleAttention(pair, layer_index, ending=False)
        self.ending = TriangleAttention(pair, layer_index, ending=True)
        self.pair_transition = MLP(pair)
        names = ("outgoing", "incoming", "starting", "ending", "pair_transition")
        self.pair_residuals = nn.ModuleDict({name: Residual(pair, layer_index) for name in names})
        for name in names[:-1]:
            self.pair_residuals[name].dropout = SharedDropout(config.pair_dropout, columns=name == "ending")

    def forward(
        self,
        hidden: Tensor,
        pair: Tensor,
        mask: Tensor | None,
        sequence_mask: Tensor | None,
        *,
        attention_implementation: str,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        context = LayerContext(backend=attention_implementation)
        weighted = context._replace(weights=wants_weights(self.row_attn.config, kwargs))
        hidden, weights = self.attend_rows(hidden, with_bias(weighted, mask_scores(self.row_bias(pair), mask)))
        rows = hidden if hidden.ndim == 4 else hidden[:, None]
        rows = self.update_columns(rows, sequence_mask, context)
        if self.updates_pairs:
            pair = self.update_pairs(rows, pair, mask, sequence_mask, context)
        return rows if hidden.ndim == 4 else rows[:, 0], pair, weights

    def attend_rows(self, hidden: Tensor, context: LayerContext) -> tuple[Tensor, Tensor | None]:
        """Attend along a chain, or along each row of an alignment: (B, L, D) or (B, S, L, D) -> same, weights."""
        given = self.row_attn_residual.input(hidden)
        branch, weights = self.row_attn(given, context=context, chunk_size=self.chunk_size)
        return self.row_attn_residual(hidden, branch), weights

    def update_columns(self, rows: Tensor, sequence_mask: Tensor | None, context: LayerContext) -> Tensor:
        """Attend along the columns of an alignment, and transform each residue: (B, S, L, D) -> same."""
        if self.column_attn is not None and self.column_attn_residual is not None:
            columns = self.column_attn_residual.input(rows).transpose(1, 2)
            context = with_bias(context, mask_scores(None, sequence_mask))
            branch, _ = self.column_attn(columns, context=context, chunk_size=self.chunk_size)
            rows = self.column_attn_residual(rows, branch.transpose(1, 2))
        return self.transition_residual(rows, self.transition(self.transition_residual.input(rows)))

    def update_pairs(
        self, rows: Tensor, pair: Tensor, mask: Tensor | None, sequence_mask: Tensor | None, context: LayerContext
    ) -> Tensor:
        """Read residues by outer products, then pairs along triangles, and transform each: (B, L, L, C) -> same."""
        pair = pair + self.outer_product(rows, mask_alignment(rows, mask, sequence_mask), self.chunk_size)
        for name in ("outgoing", "incoming"):
            pair = self.add(name, pair, mask)
        for name in ("starting", "ending"):
            pair = self.add(name, pair, mask, context=context, chunk_size=self.chunk_size)
        return self.add("pair_transition", pair)

    def add(self, name: str, pair: Tensor, *inputs: object, **kwargs: object) -> Tensor:
        """Add the output of a module for normalised pairs to them."""
        residual = cast(Residual, self.pair_residuals[name])
        return residual(pair, getattr(self, name)(residual.input(pair), *inputs, **kwargs))


def mask_alignment(rows: Tensor, mask: Tensor | None, sequence_mask: Tensor | None) -> Tensor | None:
    """Mark the real residues of real sequences of an alignment: (B, L), (B, S) -> (B, S, L)."""
    if mask is None and sequence_mask is None:
        return None
    real = torch.ones(rows.shape[:3], dtype=torch.bool, device=rows.device)
    real = real if mask is None else real & mask[:, None]
    return real if sequence_mask is None else real & sequence_mask[..., None]
