"""Position encodings of detectors, added in every layer to the input of the query and key projections.

Shapes: B batch, T tokens, D hidden_size.
"""

import math

import torch
from torch import Tensor, nn

from ...configuration.configuration_stack import StackConfig
from .hooks import Embedded, Position


class ImagePosition(Position):
    """Tell rows and columns apart by sines and cosines, each of them counted as a part of the whole image.

    The last real row is always one whole turn, whatever the size of the image, and padding is not counted: an image
    is encoded the same alone and in a batch. Half of the components are the row's, half the column's.

    Acts at: `query_key` (before the query and key projections of every self-attention; a decoder adds it to the keys of
        memory as well).
    Source: Carion et al. 2020, DETR, appendix A.4, https://arxiv.org/abs/2005.12872; its code, `position_encoding.py`
    Shapes: padding_mask (B, rows * columns) -> (B, rows * columns, D)
    """

    def query_key(self, embedded: Embedded) -> Tensor:
        hidden, mask, grid = embedded
        real = mask if isinstance(mask, Tensor) else hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
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
        return embedded.hidden + self.query_key(embedded)


class QueryPosition(Position):
    """Give each object query a trained vector: queries start as zeros, and nothing else tells them apart.

    Acts at: `query_key` (before the query and key projections of every self-attention and the query projection of every
        cross-attention).
    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: hidden (B, T, D) -> (B, T, D)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def query_key(self, embedded: Embedded) -> Tensor | None:
        places = torch.arange(self.table.num_embeddings, device=embedded.hidden.device)
        return self.table(places).expand(embedded.hidden.shape[0], -1, -1)


DETECTION_POSITIONS: dict[str, type[Position]] = {
    "sinusoidal_2d": ImagePosition,
    "sinusoidal_2d_and_input": ImageAndInputPosition,
    "object_queries": QueryPosition,
}
