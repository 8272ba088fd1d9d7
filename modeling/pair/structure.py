"""The structure module: residues become frames in space, which attention over points moves, and torsion angles.

Shapes: B batch, L residues, D width of a residue, C width of a pair, H heads, P points of a head, N layers.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from ...configuration.configuration_folding import QkvFoldingConfig
from ..normalization import LayerNorm
from .frames import UNKNOWN, Frames, atoms_of, frames_of_torsions, place_atoms, rotate_points, rotation_of, turn

# Å in a unit of translations.
SCALE = 10.0
EPSILON = 1e-8


class Structure(NamedTuple):
    """Predictions of all layers of a structure module.

    Shapes: quaternions and translations in Å (N, B, L, 7), sin and cos of torsions (N, B, L, 7, 2), positions of atoms
    (N, B, L, 14, 3), states (N, B, L, D), which atoms the amino acids have (B, L, 14)
    """

    frames: Tensor
    angles: Tensor
    positions: Tensor
    states: Tensor
    atoms: Tensor


class InvariantPointAttention(nn.Module):
    """Attend by content, pairs, and distances of points in space: turning and moving all frames changes nothing.

    Biases, the layout of points and the small number in the norm are those of AlphaFold 2's code.

    Source: Jumper et al. 2021, supplement, algorithm 22, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: residues (B, L, D), pairs (B, L, L, C), frames (B, L), mask (B, L) or None -> (B, L, D)
    """

    def __init__(self, config: QkvFoldingConfig) -> None:
        super().__init__()
        width, heads, dim = config.structure_hidden_size, config.num_structure_heads, config.structure_head_dim
        self.heads, self.query_points, self.value_points = heads, config.num_query_points, config.num_value_points
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, heads * dim) for _ in range(3))
        self.q_points = nn.Linear(width, 3 * heads * self.query_points)
        self.kv_points = nn.Linear(width, 3 * heads * (self.query_points + self.value_points))
        self.pair_bias = nn.Linear(config.structure_pair_size, heads)
        self.point_weights = nn.Parameter(torch.empty(heads))
        self.o_proj = nn.Linear(heads * (dim + 4 * self.value_points + config.structure_pair_size), width)

    def init_parameters(self, std: float) -> None:
        """Weigh points by 1 after softplus."""
        init.constant_(self.point_weights, math.log(math.e - 1))

    def forward(self, hidden: Tensor, pair: Tensor, frames: Frames, mask: Tensor | None) -> Tensor:
        query, key, value = (
            proj(hidden).unflatten(-1, (self.heads, -1)) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        query_points = self.points(self.q_points, hidden, frames)
        key_points, value_points = self.points(self.kv_points, hidden, frames).split(
            (self.query_points, self.value_points), dim=-2
        )
        scores = torch.einsum("bihd,bjhd->bhij", query, key) / query.shape[-1] ** 0.5
        scores = (scores + self.pair_bias(pair).movedim(-1, 1)) / 3**0.5
        scores = scores + self.nearness(query_points, key_points)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
        return self.read(scores.softmax(-1), value, value_points, pair, frames)

    def points(self, proj: nn.Linear, hidden: Tensor, frames: Frames) -> Tensor:
        """Return points of residues in space: (B, L, D) -> (B, L, H, P, 3)."""
        points = proj(hidden).unflatten(-1, (3, self.heads, -1)).movedim(2, -1)
        return frames.over(2).apply(points.to(frames.shift.dtype))

    def nearness(self, query: Tensor, key: Tensor) -> Tensor:
        """Score pairs by the squared distances of their points: 2 x (B, L, H, P, 3) -> (B, H, L, L)."""
        squares = (query[:, :, None] - key[:, None]).square().sum((-1, -2))
        # The mean square of two points is 9 where the components of both have variance 1.5.
        factor = -0.5 * F.softplus(self.point_weights) * math.sqrt(2 / (9 * self.query_points)) / 3**0.5
        return (squares * factor).movedim(-1, 1)

    def read(self, weights: Tensor, value: Tensor, points: Tensor, pair: Tensor, frames: Frames) -> Tensor:
        """Read values, points in the frame of the reader with their norms, and pairs: (B, H, L, L) -> (B, L, D)."""
        read = torch.einsum("bhij,bjhd->bihd", weights.to(value.dtype), value).flatten(2)
        space = torch.einsum("bhij,bjhpx->bihpx", weights.to(points.dtype), points)
        space = frames.over(2).invert(space)
        norms = (space.square().sum(-1) + EPSILON).sqrt().flatten(2)
        pairs = torch.einsum("bhij,bijc->bihc", weights.to(pair.dtype), pair).flatten(2)
        components = [each.flatten(2) for each in space.unbind(-1)]
        return self.o_proj(torch.cat([each.to(value.dtype) for each in (read, *components, norms, pairs)], dim=-1))


class ResidualBlock(nn.Module):
    """Add linear maps with ReLU between them to their input, which a ReLU may precede: (..., D) -> (..., D)."""

    def __init__(self, width: int, count: int, *, relu_first: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.relu_first = relu_first

    def forward(self, hidden: Tensor) -> Tensor:
        branch = hidden.relu() if self.relu_first else hidden
        for i, layer in enumerate(self.layers):
            branch = layer(branch.relu() if i else branch)
        return hidden + branch


class TorsionAngles(nn.Module):
    """Predict sin and cos of seven torsion angles of each residue.

    Source: Jumper et al. 2021, supplement, algorithm 20, lines 11 to 14, https://doi.org/10.1038/s41586-021-03819-2;
        the first ReLU: its code
    Shapes: states and first states (B, L, D) -> (B, L, 7, 2)
    """

    def __init__(self, config: QkvFoldingConfig) -> None:
        super().__init__()
        width, inner = config.structure_hidden_size, config.torsion_hidden_size
        self.proj, self.first_proj = nn.Linear(width, inner), nn.Linear(width, inner)
        self.layers = nn.ModuleList(ResidualBlock(inner, 2, relu_first=True) for _ in range(config.num_torsion_layers))
        self.o_proj = nn.Linear(inner, 14)

    def forward(self, hidden: Tensor, first: Tensor) -> Tensor:
        inner = self.proj(hidden.relu()) + self.first_proj(first.relu())
        for layer in self.layers:
            inner = layer(inner)
        angles = self.o_proj(inner.relu()).unflatten(-1, (7, 2))
        angles = angles.to(torch.promote_types(angles.dtype, torch.float32))
        return angles / angles.square().sum(-1, keepdim=True).clamp(min=EPSILON).sqrt()


class StructureModule(nn.Module):
    """Move frames that all start at the origin, layer by layer with the same weights, and place atoms in them.

    Source: Jumper et al. 2021, supplement, algorithm 20, https://doi.org/10.1038/s41586-021-03819-2
    Shapes: residues (B, L, D), pairs (B, L, L, C), amino acids (B, L), mask (B, L) or None -> `Structure`
    """

    def __init__(self, config: QkvFoldingConfig) -> None:
        super().__init__()
        width, self.num_layers, stack = config.structure_hidden_size, config.num_structure_layers, config.pair_stack()
        self.residue_proj = nn.Linear(config.hidden_size, width)
        self.pair_proj = nn.Linear(config.pair_hidden_size, config.structure_pair_size)
        self.norm, self.pair_norm = LayerNorm(stack, width), LayerNorm(stack, config.structure_pair_size)
        self.first_proj = nn.Linear(width, width)
        self.attention, self.attention_norm = InvariantPointAttention(config), LayerNorm(stack, width)
        self.transition = nn.ModuleList(ResidualBlock(width, 3) for _ in range(config.num_transition_layers))
        self.transition_norm, self.dropout = LayerNorm(stack, width), nn.Dropout(config.structure_dropout)
        self.update, self.torsions = nn.Linear(width, 6), TorsionAngles(config)

    def forward(self, hidden: Tensor, pair: Tensor, residues: Tensor, mask: Tensor | None) -> Structure:
        first, pair = self.norm(self.residue_proj(hidden)), self.pair_norm(self.pair_proj(pair))
        state, residues = self.first_proj(first), residues.clamp(max=UNKNOWN)
        precise = torch.promote_types(state.dtype, torch.float32)
        quaternion = F.pad(torch.ones_like(state[..., :1], dtype=precise), (0, 3))
        shift = torch.zeros_like(quaternion[..., 1:])
        layers = []
        for _ in range(self.num_layers):
            state = self.transform(state, pair, Frames(rotation_of(quaternion), shift), mask)
            vector, step = self.update(state).to(precise).chunk(2, dim=-1)
            shift = shift + rotate_points(rotation_of(quaternion), step)
            quaternion = turn(quaternion, vector)
            layers.append(self.place(state, first, quaternion, shift * SCALE, residues))
            # Rotations of one layer teach no earlier one.
            quaternion = quaternion.detach()
        return Structure._make((*map(torch.stack, zip(*layers, strict=True)), atoms_of(residues)))

    def transform(self, state: Tensor, pair: Tensor, frames: Frames, mask: Tensor | None) -> Tensor:
        """Let residues attend to each other in space, and transform each: (B, L, D) -> same."""
        state = self.attention_norm(self.dropout(state + self.attention(state, pair, frames, mask)))
        for block in self.transition:
            state = block(state)
        return self.transition_norm(self.dropout(state))

    def place(
        self, state: Tensor, first: Tensor, quaternion: Tensor, shift: Tensor, residues: Tensor
    ) -> tuple[Tensor, ...]:
        """Place the atoms of each residue by its frame and its torsion angles; return a layer of `Structure`."""
        angles = self.torsions(state, first)
        groups = frames_of_torsions(Frames(rotation_of(quaternion), shift), angles, residues)
        return torch.cat((quaternion, shift), dim=-1), angles, place_atoms(groups, residues), state
