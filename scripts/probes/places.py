"""Places of tokens: their number in a text or in sound, row and column of a patch in an image.

Shapes: T tokens, C coordinates of a place, 1 in a text and 2 in an image.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.modeling.stack import Stack
from qkv.scripts.attention.core import hooked, models_around
from qkv.scripts.attention.layers import attention_layers

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

    def record(stack: str, embedded: Any) -> None:
        if getattr(embedded, "grid", None) is not None:
            grids[stack] = embedded.grid

    stacks = {path: module for path, module in model.named_modules() if isinstance(module, Stack)}
    names = {each.embed_tokens: stack_of(model, path) for path, each in stacks.items()}
    with hooked({module: lambda *seen, name=name: record(name, seen[2]) for module, name in names.items()}):
        yield grids


def stack_of(model: nn.Module, path: str) -> str:
    """Return the stack, as `capture_attention` names it, of the self-attention nearest to a path."""
    parts = path.split(".")

    def shared(other: str) -> int:
        pairs = zip(parts, other.split("."), strict=False)
        return next((depth for depth, (one, two) in enumerate(pairs) if one != two), len(parts))

    layers = attention_layers(model)
    own = [layer for layer in layers if layer.stack != "cross"] or layers
    return max(own, key=lambda layer: shared(layer.path)).stack


def places_of(
    model: nn.Module, stack: str, tokens: int, batch: Mapping[str, Any], grids: Mapping[str, Grid]
) -> Places | None:
    """Return the places of the tokens of a stack, or None where they have no order, as object queries.

    The grid of an image is recorded of our stacks; of transformers' models it follows from the size of a patch, and is
    unknown behind a backbone.
    """
    path = next(layer.path for layer in attention_layers(model) if layer.stack == stack)
    owner: Any = models_around(model, path)[-1]
    grid = grids.get(stack)
    if grid is None and owner.main_input_name not in ("pixel_values", "encoder_hidden_states"):
        return Places(0, torch.arange(tokens)[:, None])
    images, size = batch.get("pixel_values"), getattr(owner.config, "patch_size", None)
    if grid is None and owner.main_input_name == "pixel_values" and images is not None and size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        grid = images.shape[-2] // height, images.shape[-1] // width
    prefix = -1 if grid is None else tokens - grid[0] * grid[1]
    if grid is None or not 0 <= prefix <= MOST_PREFIX_TOKENS:
        return None
    return Places(prefix, torch.cartesian_prod(*map(torch.arange, grid)))
