"""Position encodings: each acts in one of four places, a hook of `Position` that does nothing by default.

Shapes: B batch, T queries, S keys, D hidden_size, H heads, K head_dim.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..configuration.configuration_stack import StackConfig


class Embedded(NamedTuple):
    """What a frontend makes of an input: one vector for each token, and how the tokens lie.

    Shapes: hidden (B, T, D); padding_mask (B, T), true where a token is real, or None where all are; grid the numbers
    of rows and columns of an image, of which the last rows * columns tokens are patches.
    """

    hidden: Tensor
    padding_mask: Any = None
    grid: tuple[int, int] | None = None

    def requires_grad_(self, requires_grad: bool = True) -> "Embedded":
        """Let the vectors take a gradient, as transformers asks of the output of input embeddings."""
        return self._replace(hidden=self.hidden.requires_grad_(requires_grad))


class Rotation(NamedTuple):
    """Cosines and sines (B or 1, 1, T, K) by which queries are rotated, and those for keys."""

    query: tuple[Tensor, Tensor]
    key: tuple[Tensor, Tensor]


class PositionState(NamedTuple):
    """What an encoding adds inside the layers of one pattern; None where it adds nothing.

    `rotation` turns queries and keys of self-attention. `query_key` (B, T, D) is added to what queries and keys of
    self-attention and queries of cross-attention are projected from, `memory_key` (B, S, D) to what keys of
    cross-attention are projected from. `bias` (B or 1, H, T, S) is added to the scores of self-attention.
    """

    rotation: Rotation | None = None
    query_key: Tensor | None = None
    memory_key: Tensor | None = None
    bias: Tensor | None = None


NO_POSITION = PositionState()


class Position(nn.Module):
    """Leave order unseen: without a mask the stack is equivariant to permutation.

    Acts at: nowhere; every other encoding overrides the hook where it acts.
    Source: Vaswani et al. 2017, Attention Is All You Need, §3.5, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D), positions (B or 1, T) absolute, counted from 0 at a document's first real token
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        """Act on the stack's input: (B, T, D), (B or 1, T) -> (B, T, D)."""
        return embedded.hidden

    def rotation(self, positions: Tensor, dtype: torch.dtype, pattern: str | None = None) -> Rotation | None:
        """Return the rotation of queries and keys in layers of a pattern: (B or 1, T) -> (B or 1, 1, T, K)."""
        return None

    def query_key(self, embedded: Embedded) -> Tensor | None:
        """Return what is added to the input of the query and key projections of every layer: (B, T, D)."""
        return None

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Return what is added to the scores: (B or 1, T), (B or 1, S) -> (B or 1, H, T, S)."""
        return None


class LearnedPosition(Position):
    """Add a trained vector for each absolute position.

    Positions past the table are refused; for images of another size the table is resampled bicubically.

    Acts at: `embed`.
    Source: Gehring et al. 2017, §3.1, https://arxiv.org/abs/1705.03122; images: Dosovitskiy et al. 2021, §3.2,
        https://arxiv.org/abs/2010.11929
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings + config.position_offset, config.position_width)

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        if embedded.grid is not None and embedded.grid != self.config.grid:
            return embedded.hidden + self.resample(embedded.grid)
        return embedded.hidden + self.table(positions + self.config.position_offset)

    def resample(self, grid: tuple[int, int]) -> Tensor:
        """Interpolate the table to another grid of patches; prefix tokens keep their rows: -> (T, D)."""
        start = self.config.position_offset + self.config.num_prefix_tokens
        prefix, patches = self.table.weight[self.config.position_offset : start], self.table.weight[start:]
        image = patches.T.unflatten(1, self.config.grid)[None]  # (1, D, rows, columns)
        # In half precision the weights of the cubic would shift the table.
        precise = image.to(torch.promote_types(image.dtype, torch.float32))
        resampled = F.interpolate(precise, size=grid, mode="bicubic", align_corners=False).to(image.dtype)
        return torch.cat((prefix, resampled[0].flatten(1).T))


class GridPosition(Position):
    """Add a trained vector for each position of a text, and for what follows one for its row and one for its column.

    Tokens of an image that stand in one column share what is learned of it, and so do those of a row.

    Acts at: `embed`.
    Source: Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, appendix B.1, figure 10,
        https://arxiv.org/abs/2102.12092; factors: Child et al. 2019, §5.1, https://arxiv.org/abs/1904.10509
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        size = config.text_length + config.grid_rows + config.grid_columns
        self.table = nn.Embedding(size, config.position_width)

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        config = self.config
        place = positions - config.text_length
        row, column = place // config.grid_columns, place % config.grid_columns
        first = torch.where(place < 0, positions, config.text_length + row)
        second = self.table(config.text_length + config.grid_rows + column)
        return embedded.hidden + self.table(first) + second.where(place[..., None] >= 0, 0.0)


class SinusoidalPosition(Position):
    """Add sines and cosines of geometrically spaced wavelengths, interleaved as in the paper.

    The encoding of a shifted position is a fixed linear map of the encoding itself, and no length is too long.

    Acts at: `embed`.
    Source: Vaswani et al. 2017, §3.5, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        hidden = embedded.hidden
        # A late position times a frequency loses digits in single precision; MPS has nothing better.
        precise = torch.float32 if hidden.device.type == "mps" else torch.float64
        pairs = torch.arange(hidden.shape[-1] // 2, device=hidden.device, dtype=precise)
        positions = positions + self.config.position_offset
        angles = positions[..., None] / 10000.0 ** (pairs / self.steps(len(pairs)))  # (B, T, D / 2)
        return hidden + self.arrange(angles.sin(), angles.cos()).to(torch.float32).to(hidden.dtype)

    def steps(self, pairs: int) -> int:
        """Return in how many steps the wavelengths grow by the factor 10,000."""
        return pairs

    def arrange(self, sines: Tensor, cosines: Tensor) -> Tensor:
        """Put sines on even dimensions and cosines on odd ones: 2 x (B, T, D / 2) -> (B, T, D)."""
        return torch.stack((sines, cosines), dim=-1).flatten(-2)


class ConcatenatedSinusoidalPosition(SinusoidalPosition):
    """Add the same sinusoids with all sines before all cosines, the layout of Marian's checkpoints in transformers.

    A permutation of the paper's layout, which only checkpoints can tell apart.

    Acts at: `embed`.
    Source: Vaswani et al. 2017, §3.5, https://arxiv.org/abs/1706.03762; layout: transformers' Marian
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def arrange(self, sines: Tensor, cosines: Tensor) -> Tensor:
        return torch.cat((sines, cosines), dim=-1)


class Tensor2TensorSinusoidalPosition(ConcatenatedSinusoidalPosition):
    """Add sinusoids whose last wavelength is exactly 10,000 times the first, sines before cosines.

    The layout of the paper's own code, which M2M100 and Whisper keep; the formula in the paper stops one step earlier.

    Acts at: `embed`.
    Source: Vaswani et al. 2018, Tensor2Tensor, `get_timing_signal_1d`, https://arxiv.org/abs/1803.07416
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def steps(self, pairs: int) -> int:
        return max(pairs - 1, 1)


class RotaryPosition(Position):
    """Rotate queries and keys by an angle proportional to their position.

    The score of a pair then depends on the two positions only through their difference. Frequencies are read from
    `config.rope_parameters` at every forward, so editing the config takes effect and no buffer can be left unfilled.

    Acts at: `rotation` (after the query and key projections, in every self-attention).
    Source: Su et al. 2021, RoFormer, §3.2.2, eq. 34, https://arxiv.org/abs/2104.09864; scaling: `transformers`
    Shapes: positions (B or 1, T) -> 2 x (B or 1, 1, T, K)
    """

    def rotation(self, positions: Tensor, dtype: torch.dtype, pattern: str | None = None) -> Rotation | None:
        frequencies, scale = self.frequencies(positions, pattern)
        angles = positions[:, None, :, None].to(torch.float32) * frequencies.to(torch.float32)
        angles = torch.cat((angles, angles), dim=-1)
        turn = (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)
        return Rotation(turn, turn)

    def frequencies(self, positions: Tensor, pattern: str | None = None) -> tuple[Tensor, float]:
        """Return radians a step for each pair of components (K / 2,), and the factor on the rotated vectors."""
        parameters, device = self.config.rope_of(pattern), positions.device
        if parameters["rope_type"] != "default":
            own = {"layer_type": pattern} if self.config.rope_by_pattern else {}
            # Only dynamic scaling looks at the length; it keeps the trained frequencies up to the trained length.
            return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](self.config, device, seq_len=positions.max() + 1, **own)
        size = int(self.config.head_dim * parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, size, 2, dtype=torch.int64).to(device, torch.float32) / size
        return 1.0 / parameters["rope_theta"] ** exponents, 1.0


def apply_rotation(query: Tensor, key: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys; without a rotation return them as they are: 2 x (B, H, T, K) -> same."""
    return (query, key) if rotation is None else (rotate(query, *rotation.query), rotate(key, *rotation.key))


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn each pair (i, i + K/2) of components by its angle; components past the angles stay: (B, H, T, K) -> same."""
    turned, kept = heads.split((cosines.shape[-1], heads.shape[-1] - cosines.shape[-1]), dim=-1)
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cosines + torch.cat((-second, first), dim=-1) * sines
    return torch.cat((turned, kept), dim=-1) if kept.shape[-1] else turned


class AlibiPosition(Position):
    """Lower each score in proportion to the distance, with a slope of its own for each head.

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


class ImagePosition(Position):
    """Tell rows and columns apart by sines and cosines, each of them counted as a part of the whole image.

    The last real row is always one whole turn, whatever the size of the image, and padding is not counted: an image
    is encoded the same alone and in a batch. Half of the components are the row's, half the column's.

    Acts at: `query_key` (before the query and key projections of every self-attention; a decoder adds it to the keys of
        memory as well).
    Source: Carion et al. 2020, DETR, appendix A.4, https://arxiv.org/abs/2005.12872; its code, `position_encoding.py`
    Shapes: padding_mask (B, rows * columns) -> (B, rows * columns, D)
    """

    def query_key(self, embedded: Embedded) -> Tensor | None:
        return self.sinusoids(embedded)

    def sinusoids(self, embedded: Embedded) -> Tensor:
        """Return the encoding of each place (B, rows * columns, D)."""
        hidden, mask, grid = embedded
        real = hidden.new_ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask
        precise = torch.float32 if hidden.device.type == "mps" else torch.float64
        steps = torch.arange(self.config.hidden_size // 4, device=hidden.device, dtype=precise)
        lengths = 10000.0 ** (steps / len(steps))
        sinusoids = []
        for axis in (1, 2):
            counts = real.unflatten(1, grid).to(precise).cumsum(axis)
            last = counts.narrow(axis, counts.shape[axis] - 1, 1)
            angles = (2 * math.pi * counts / (last + 1e-6))[..., None] / lengths  # (B, rows, columns, D / 4)
            sinusoids.append(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2))
        return torch.cat(sinusoids, dim=-1).flatten(1, 2).to(hidden.dtype)


class ImageAndInputPosition(ImagePosition):
    """Add the sinusoids of rows and columns to the stack's input too, so that values say where they are from.

    A detector of few layers needs it: its boxes are read off values.

    Acts at: `query_key` and `embed`.
    Source: Carion et al. 2020, DETR, §4.2, table 3 (encodings at input and at attention),
        https://arxiv.org/abs/2005.12872
    Shapes: hidden (B, rows * columns, D) -> same
    """

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        return embedded.hidden + self.sinusoids(embedded)


class QueryPosition(Position):
    """Give each object query a trained vector of its own: queries start as zeros, and nothing else tells them apart.

    Acts at: `query_key` (before the query and key projections of every self-attention and the query projection of every
        cross-attention).
    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: hidden (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def query_key(self, embedded: Embedded) -> Tensor | None:
        return self.table.weight.expand(embedded.hidden.shape[0], -1, -1)


POSITIONS = {
    "none": Position,
    "learned": LearnedPosition,
    "grid": GridPosition,
    "sinusoidal": SinusoidalPosition,
    "sinusoidal_concat": ConcatenatedSinusoidalPosition,
    "sinusoidal_t2t": Tensor2TensorSinusoidalPosition,
    "rope": RotaryPosition,
    "alibi": AlibiPosition,
    "t5": T5Position,
    "sinusoidal_2d": ImagePosition,
    "sinusoidal_2d_and_input": ImageAndInputPosition,
    "object_queries": QueryPosition,
}
