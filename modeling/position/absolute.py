"""Position encodings that are added to the input of a stack.

Shapes: B batch, T tokens, D hidden_size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...configuration.configuration_stack import StackConfig
from .hooks import Embedded, Position


class LearnedPosition(Position):
    """Add a trained vector for each absolute position.

    Positions past the table are refused; for images of another size the table is resampled bicubically. Registers, the
    last tokens before patches, have no rows.

    Acts at: `embed`.
    Source: Gehring et al. 2017, §3.1, https://arxiv.org/abs/1705.03122; images: Dosovitskiy et al. 2021, §3.2,
        https://arxiv.org/abs/2010.11929
    Shapes: hidden (B, T, D), positions (B or 1, T) -> (B, T, D)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.registers = getattr(config, "num_register_tokens", 0)
        rows = config.max_position_embeddings - self.registers
        self.table = nn.Embedding(rows + config.position_offset, config.position_width)

    def embed(self, embedded: Embedded, positions: Tensor) -> Tensor:
        if embedded.grid is not None and embedded.grid != self.config.grid:
            return embedded.hidden + self.resample(embedded.grid, embedded.hidden.device)
        if not self.registers:
            return embedded.hidden + self.table(positions + self.config.position_offset)
        past = positions - self.config.num_prefix_tokens + self.registers  # 0 at the first register
        rows = torch.where(past < 0, positions, (positions - self.registers).clamp(min=0)) + self.config.position_offset
        return embedded.hidden + self.table(rows).where(((past < 0) | (past >= self.registers))[..., None], 0.0)

    def resample(self, grid: tuple[int, int], device: torch.device) -> Tensor:
        """Interpolate the table to another grid of patches; prefix tokens keep their rows: -> (T, D)."""
        if self.registers:  # DINOv2 filters the table first, which this does not
            raise ValueError(f"num_register_tokens={self.registers} needs images of {self.config.image_size}; resize")
        # Called, for a table that is offloaded is there only then.
        rows = self.table(torch.arange(self.config.position_offset, self.table.num_embeddings, device=device))
        prefix, patches = rows.tensor_split([self.config.num_prefix_tokens])
        image = patches.T.unflatten(1, self.config.grid)[None]  # (1, D, rows, columns)
        # In half precision the weights of the cubic would shift the table.
        precise = image.to(torch.promote_types(image.dtype, torch.float32))
        resampled = F.interpolate(precise, size=grid, mode="bicubic", align_corners=False).to(image.dtype)
        return torch.cat((prefix, resampled[0].flatten(1).T))


class GridPosition(Position):
    """Add a trained vector for each position of a text, and for each row and each column of the image after it.

    All tokens of a column share one vector, and so do those of a row.

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


ABSOLUTE_POSITIONS: dict[str, type[Position]] = {
    "learned": LearnedPosition,
    "grid": GridPosition,
    "sinusoidal": SinusoidalPosition,
    "sinusoidal_concat": ConcatenatedSinusoidalPosition,
    "sinusoidal_t2t": Tensor2TensorSinusoidalPosition,
}
