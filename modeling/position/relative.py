"""Position encodings that act on scores through the distance of query and key: by rotation, or by a bias of each head.

Shapes: B batch, T queries, S keys, H heads, K head_dim.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ...configuration.configuration_encoder import QkvEncoderConfig
from ...configuration.configuration_stack import StackConfig
from ..normalization import make_norm
from .absolute import LearnedPosition
from .hooks import Grid, Position, Rotation


class RotaryPosition(Position):
    """Rotate queries and keys by an angle proportional to their position.

    The score of a pair then depends on the two positions only through their difference. Frequencies are read from
    `config.rope_parameters` at every forward, so editing the config takes effect and no buffer can be left unfilled.

    Acts at: `rotation` (after the query and key projections, in every self-attention).
    Source: Su et al. 2021, RoFormer, §3.2.2, eq. 34, https://arxiv.org/abs/2104.09864; scaling: `transformers`
    Shapes: positions (B or 1, T) -> 2 x (B or 1, 1, T, K)
    """

    axes = 1  # coordinates that share the pairs of components

    def rotation(
        self, positions: Tensor, dtype: torch.dtype, pattern: str | None = None, grid: Grid = None
    ) -> Rotation | None:
        cosines, sines = self.turn(positions, pattern, grid)
        turn = cosines.to(dtype), sines.to(dtype)
        return Rotation(turn, turn)

    def turn(self, positions: Tensor, pattern: str | None = None, grid: Grid = None) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of a `Rotation`, in single precision: (B or 1, T) -> 2 x (B or 1, 1, T, K)."""
        frequencies, scale = self.frequencies(positions, pattern)
        angles = positions[:, None, :, None].to(torch.float32) * frequencies
        cosines, sines = angles.cos() * scale, angles.sin() * scale
        return torch.cat((cosines, cosines), dim=-1), torch.cat((-sines, sines), dim=-1)

    def frequencies(self, positions: Tensor, pattern: str | None = None) -> tuple[Tensor, float]:
        """Return radians a step for each pair of components (K / 2,), and the factor on the rotated vectors."""
        parameters, device = self.config.rope_of(pattern), positions.device
        rounded = getattr(torch, parameters.get("inv_freq_dtype", "float32"))
        if parameters["rope_type"] != "default" and "alpha" not in parameters:
            own = {"layer_type": pattern} if self.config.rope_by_pattern else {}
            scaled = partial(ROPE_INIT_FUNCTIONS[parameters["rope_type"]], self.config, device, **own)
            if parameters["rope_type"] == "longrope":  # has an `if` on the length, which no graph could record
                trained = parameters["original_max_position_embeddings"]
                (short, scale), (long, _) = scaled(seq_len=None), scaled(seq_len=trained + 1)
                frequencies = torch.where(positions.max() < trained, short, long)
            else:  # dynamic scaling keeps the trained frequencies up to the trained length
                frequencies, scale = scaled(seq_len=positions.max() + 1)
            return frequencies.to(rounded).to(torch.float32), scale
        size = int(self.config.head_dim * parameters.get("partial_rotary_factor", 1.0)) // self.axes
        exponents = torch.arange(0, size, 2, dtype=torch.int64).to(device, torch.float32) / size
        # The alpha of HunYuan raises the base for good, so that the slowest pair turns 1 / alpha as fast.
        base = parameters["rope_theta"] * parameters.get("alpha", 1.0) ** (size / max(size - 2, 1))
        return (1.0 / base**exponents).to(rounded).to(torch.float32), 1.0


class PatchRotaryPosition(RotaryPosition):
    """Rotate half of the pairs by the row of a patch and half by its column, from -1 to 1; tokens before patches stay.

    Images of any size have the same outer angles.

    Acts at: `rotation` (after the query and key projections, in every self-attention).
    Source: Siméoni et al. 2025, DINOv3, §3.2, https://arxiv.org/abs/2508.10104; by rows and columns: Heo et al. 2024,
        §3.1, https://arxiv.org/abs/2403.13298
    Shapes: positions (B or 1, T) -> 2 x (1, 1, T, K)
    """

    axes = 2

    def turn(self, positions: Tensor, pattern: str | None = None, grid: Grid = None) -> tuple[Tensor, Tensor]:
        sides, prefix, turn = grid or self.config.grid, self.config.num_prefix_tokens, super().turn
        if positions.shape[1] != prefix + math.prod(sides):
            raise ValueError(f"{positions.shape[1]} tokens are not {prefix} and a grid of {sides} patches; give images")
        places = [torch.arange(0.5, side, dtype=torch.float32, device=positions.device) / side for side in sides]
        centers = 2 * math.pi * (2 * torch.cartesian_prod(*places) - 1).T  # (2, rows * columns)
        turns = zip(*(turn(F.pad(each, (prefix, 0))[None], pattern) for each in centers), strict=True)
        # Rows and columns in each half of the components, which are turned together.
        cosines, sines = (torch.stack([each.unflatten(-1, (2, -1)) for each in pair], -2).flatten(-3) for pair in turns)
        return cosines, sines


class XPosition(RotaryPosition):
    """Rotate as rope does, and let the score of a pair decay with its distance, faster for slow pairs of components.

    Queries at position n are multiplied by zeta^(n/512) and keys at m by zeta^(-m/512), zeta from 0.29 to 1, so scores
    depend on n - m alone. Made for causal stacks: elsewhere scores of later keys grow. Float16 holds 4,000 positions.

    Acts at: `rotation` (after the query and key projections, in every self-attention).
    Source: Sun et al. 2022, A Length-Extrapolatable Transformer, §2.2, algorithm 1, https://arxiv.org/abs/2212.10554;
        512 positions a step as in its code, torchscale, `xpos_relative_position.py`
    Shapes: positions (B or 1, T) -> 2 x 2 x (B or 1, 1, T, K)
    """

    def rotation(
        self, positions: Tensor, dtype: torch.dtype, pattern: str | None = None, grid: Grid = None
    ) -> Rotation | None:
        cosines, sines = self.turn(positions, pattern)
        pairs = torch.arange(cosines.shape[-1] // 2, device=positions.device) / (cosines.shape[-1] // 2)
        scale = ((pairs + 0.4) / 1.4).repeat(2) ** (positions[:, None, :, None] / 512)
        query = (cosines * scale).to(dtype), (sines * scale).to(dtype)
        return Rotation(query, ((cosines / scale).to(dtype), (sines / scale).to(dtype)))


class AlibiPosition(Position):
    """Lower each score in proportion to the distance, with one slope for each head.

    Scores depend on distance alone, and lengths never seen in training extrapolate.

    Acts at: `bias`.
    Source: Press et al. 2022, Train Short, Test Long, §3, https://arxiv.org/abs/2108.12409
    Shapes: (B or 1, T), (B or 1, S) -> (B or 1, H, T, S)
    """

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).abs()
        return -self.slopes(distance.device)[:, None, None] * distance

    def slopes(self, device: torch.device) -> Tensor:
        """Return a geometric sequence over the heads; those over a power of two take every other slope between: (H,)"""
        heads = self.config.num_attention_heads
        power = 2 ** math.floor(math.log2(heads))
        exact = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
        between = [2.0 ** (-4.0 * (2 * head + 1) / power) for head in range(heads - power)]
        return torch.tensor(exact + between, device=device, dtype=torch.float32)


class T5Position(Position):
    """Add a learned score for each bucket of relative distance: exact near by, logarithmic far away.

    Scores depend on the signed distance alone; all layers share one table.

    Acts at: `bias`.
    Source: Raffel et al. 2020, T5, §2.1, https://arxiv.org/abs/1910.10683
    Shapes: (B or 1, T), (B or 1, S) -> (B or 1, H, T, S)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.relative_attention_num_buckets, config.num_attention_heads)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        return self.table(self.bucket(key_positions[:, None, :] - query_positions[:, :, None])).permute(0, 3, 1, 2)

    def bucket(self, offset: Tensor) -> Tensor:
        """Return the bucket of key position minus query position; a causal stack spends none on the future."""
        buckets, furthest = self.config.relative_attention_num_buckets, self.config.relative_attention_max_distance
        side, distance = torch.zeros_like(offset), (-offset).clamp(min=0)
        if not self.config.causal:
            buckets //= 2
            side, distance = (offset > 0).long() * buckets, offset.abs()
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=1).to(torch.float32) / exact) / math.log(furthest / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, far)


class LearnedAndT5Position(LearnedPosition):
    """Add a trained vector for each absolute position, and a learned score for each bucket of relative distance.

    Acts at: `embed` and `bias`.
    Source: Song et al. 2020, MPNet, its code, https://arxiv.org/abs/2004.09297
    Shapes: as of its two parts
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.relative = T5Position(config)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        return self.relative.bias(query_positions, key_positions)


class KerplePosition(Position):
    """Lower each score by the logarithm of the distance, -r1 log(1 + r2 |i - j|), with both numbers learned by head.

    All layers share them, as in figure 1 of the paper. They are positive because their logarithms are learned, where
    the official code clamps. Lengths never seen in training extrapolate.

    Acts at: `bias`.
    Source: Chi et al. 2022, KERPLE, §4, the logarithmic kernel, https://arxiv.org/abs/2205.09921
    Shapes: (B or 1, T), (B or 1, S) -> (B or 1, H, T, S)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.log_r1 = nn.Parameter(torch.zeros(config.num_attention_heads))
        self.log_r2 = nn.Parameter(torch.zeros(config.num_attention_heads))

    def init_parameters(self, std: float) -> None:
        """Draw r1 up to 2 and r2 up to 1 as the official code does, https://github.com/chijames/KERPLE: 2 x (H,)."""
        for parameter, most in ((self.log_r1, 2.0), (self.log_r2, 1.0)):
            init.uniform_(parameter, 0.01, most)
            init.copy_(parameter, parameter.log())

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).abs()
        r1, r2 = self.log_r1.exp()[:, None, None], self.log_r2.exp()[:, None, None]
        # In half precision neighbouring distances beyond a few hundred would be one.
        return -r1 * torch.log1p(r2 * distance.to(torch.float32))


class DisentangledPosition(Position):
    """Number the distance of each query and key: exact near by, logarithmic far away; all layers share the vectors.

    Acts at: `bias`, whose numbers attention makes scores of, with `vectors` (`DisentangledAttention`).
    Source: He et al. 2021, DeBERTa, §3.1, eq. 3, https://arxiv.org/abs/2006.03654; logarithms and norm: its code for
        version 2, `make_log_bucket_position`, https://github.com/microsoft/DeBERTa
    Shapes: (B or 1, T), (B or 1, S) -> (B or 1, 1, T, S), vectors (N, D)
    """

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.distances = nn.Embedding(config.relative_attention_num_buckets, config.hidden_size)
        self.norm = make_norm(config) if config.norm_rel_ebd == "layer_norm" else nn.Identity()

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
        buckets, furthest = self.config.relative_attention_num_buckets, self.config.relative_attention_max_distance
        exact = buckets // 4
        ratio = torch.log(distance.abs().clamp(min=exact).to(torch.float32) / exact)
        ratio = ratio / torch.log(torch.tensor((furthest - 1) / exact, dtype=torch.float32))
        far = (exact + (ratio * (exact - 1)).ceil().long()) * distance.sign()
        return (torch.where(distance.abs() <= exact, distance, far) + buckets // 2).clamp(0, buckets - 1)

    def vectors(self, device: torch.device) -> Tensor | None:
        return self.norm(self.distances(torch.arange(self.distances.num_embeddings, device=device)))


class LearnedAndDisentangledPosition(LearnedPosition, DisentangledPosition):
    """Add a trained vector for each absolute position, and number distances for attention.

    Acts at: `embed`, `bias` and `vectors`.
    Source: He et al. 2021, DeBERTa, its code (`position_biased_input`), https://github.com/microsoft/DeBERTa
    Shapes: as of its two parts
    """


RELATIVE_POSITIONS: dict[str, type[Position]] = {
    "rope": RotaryPosition,
    "rope_2d": PatchRotaryPosition,
    "xpos": XPosition,
    "alibi": AlibiPosition,
    "t5": T5Position,
    "kerple": KerplePosition,
    "learned_and_t5": LearnedAndT5Position,
    "disentangled": DisentangledPosition,
    "learned_and_disentangled": LearnedAndDisentangledPosition,
}
