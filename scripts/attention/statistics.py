"""Statistics of attention weights: entropy, distance, and attention to the first token; the grid of an image's tokens.

Shapes: B batch, H heads, T queries, S keys; C coordinates of a token, 1 in a text and 2 in an image.
"""

import math
from typing import Any

import torch
from torch import Tensor

PREFIXES = 8  # tokens before the patches of a grid that are tried: of a class, of distillation, registers
COLOURS = "Blues"  # of weights and statistics in every figure, as on the page of `qkv attend`


def attention_entropy(weights: Tensor) -> Tensor:
    """Compute the entropy of each query's attention, in bits: 0 on one key, log2 S where all keys get the same.

    Source: Clark et al. 2019, What Does BERT Look At?, §3.3, https://arxiv.org/abs/1906.04341
    Shapes: (B, H, T, S) -> (B, H, T)
    """
    return torch.special.entr(weights.float()).sum(-1) / math.log(2)


def attention_distance(weights: Tensor, places: Tensor, prefix: int = 0) -> Tensor:
    """Average the Euclidean distances of a query to its keys, weighted by attention; T queries have the first places.

    The place of a token is its number in a text, the row and column of a patch in an image; the first `prefix` tokens,
    as a class token, have none and are left out. A query that sees nothing has nan.

    Source: Dosovitskiy et al. 2021, §4.5 and appendix D.7, https://arxiv.org/abs/2010.11929; texts: Clark et al. 2019,
        §3.1, https://arxiv.org/abs/1906.04341
    Shapes: weights (B, H, T, S), places (S - prefix, C) -> (B, H, T - prefix)
    """
    weights = weights[:, :, prefix:, prefix:].float()
    places = places.float().to(weights.device)
    distances = torch.cdist(places[: weights.shape[-2]], places, compute_mode="donot_use_mm_for_euclid_dist")
    return (weights * distances).sum(-1) / weights.sum(-1)


def first_token_attention(weights: Tensor, first: Tensor) -> Tensor:
    """Select each query's attention to the first real key of its row, the attention sink of many models.

    Source: Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks, §3.1,
        https://arxiv.org/abs/2309.17453
    Shapes: weights (B, H, T, S), first (B,) -> (B, H, T)
    """
    return weights.float().gather(-1, first.view(-1, 1, 1, 1).expand(*weights.shape[:3], 1)).squeeze(-1)


def mean_of_queries(values: Tensor, real: Tensor, dim: int | tuple[int, ...] = -1) -> Tensor:
    """Average over the real queries that have a value, in the dimensions `dim`; nan for none."""
    return values.masked_fill(~real, math.nan).nanmean(dim)


def grid_of(config: Any, count: int, images: Tensor) -> tuple[tuple[int, int], int] | None:
    """Return the rows and columns of an image's patches, and how many of `count` tokens stand before; None for no grid.

    Convolutional features, whose config has no patch size, have the shape of the images (..., height, width).
    """
    (height, width), patch = images.shape[-2:], getattr(getattr(config, "vision_config", config), "patch_size", None)
    if patch is not None:
        sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
        rows, columns = height // sides[0], width // sides[1]
        return ((rows, columns), count - rows * columns) if 0 <= count - rows * columns <= PREFIXES else None
    for prefix in range(min(PREFIXES, count)):
        for rows in range(1, count - prefix + 1):
            columns, left = divmod(count - prefix, rows)
            # Strides round up, so that the grid has the shape of the image but for a part of a row or column.
            apart = max(abs(rows - columns * height / width), abs(columns - rows * width / height))
            if not left and apart < 1:
                return (rows, columns), prefix
    return None
