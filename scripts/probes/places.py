"""Places of tokens: their number in a text or in sound, row and column of a patch in an image.

Shapes: T tokens, C coordinates of a place, 1 in a text and 2 in an image.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from qkv.modeling.stack import Stack
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.probes.heads import patch_places
from qkv.scripts.probes.layers import Batch, hooked

Grid = tuple[int, int]
# Tokens in front of the patches of an image: of a class, of distillation, registers.
MOST_PREFIX_TOKENS = 8


class Places(NamedTuple):
    """Places (T, C) of the tokens of a stack after some without a place, as a class token."""

    prefix: int
    places: Tensor


@contextmanager
def recorded_grids(model: nn.Module) -> Iterator[dict[str, Grid]]:
    """Record, by stack, the grid of patches that each of our stacks makes of its images."""
    grids: dict[str, Grid] = {}

    def record(stack: str, *seen: Any) -> None:
        grid = getattr(seen[2], "grid", None)
        if grid is not None:
            grids[stack] = grid

    stacks = {path: module for path, module in model.named_modules() if isinstance(module, Stack)}
    with hooked({stack.embed_tokens: partial(record, stack_of(model, path)) for path, stack in stacks.items()}):
        yield grids


def stack_of(model: nn.Module, path: str) -> str:
    """Return the stack, as `capture_attention` names it, of the self-attention that a path has most in common with."""
    parts = path.split(".")

    def shared(other: str) -> int:
        pairs = zip(parts, other.split("."), strict=False)
        return next((depth for depth, (one, two) in enumerate(pairs) if one != two), len(parts))

    layers = attention_layers(model)
    own = [layer for layer in layers if layer.stack != "cross"] or layers
    return max(own, key=lambda layer: shared(layer.path)).stack


def places_of(model: nn.Module, stack: str, tokens: int, batch: Batch, grids: dict[str, Grid]) -> Places | None:
    """Return the places of the tokens of a stack, or None where they have no order, as object queries.

    The grid of an image is that which one of our stacks made; of transformers' models it is the size of the image over
    that of a patch, and unknown where an image goes through a backbone.
    """
    path = next(layer.path for layer in attention_layers(model) if layer.stack == stack)
    owner: Any = owner_of(model, path)
    grid = grids.get(stack)
    if grid is None and owner.main_input_name == "encoder_hidden_states":
        return None
    if grid is None and owner.main_input_name == "pixel_values":
        grid = patch_grid(owner.config, batch.get("pixel_values"))
        if grid is None:
            return None
    if grid is None:
        return Places(0, torch.arange(tokens)[:, None])
    prefix = tokens - grid[0] * grid[1]
    return Places(prefix, patch_places(*grid)) if 0 <= prefix <= MOST_PREFIX_TOKENS else None


def owner_of(model: nn.Module, path: str) -> nn.Module:
    """Return the innermost model of transformers around a module."""
    owner = model
    for other, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and path.startswith(f"{other}."):
            owner = module
    return owner


def patch_grid(config: Any, images: Tensor | None) -> Grid | None:
    """Return how many rows and columns of patches images have, or None for a model without patches."""
    size = getattr(config, "patch_size", None)
    if images is None or size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return images.shape[-2] // height, images.shape[-1] // width
