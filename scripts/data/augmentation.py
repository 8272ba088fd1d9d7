"""Change training images at random, by numbers that follow from their place alone."""

import math
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.scripts.recipes.schema import Augmentation, Recipe


def augment(pixels: Tensor, places: Sequence[int] | None, recipe: Recipe) -> Tensor:
    """Change images (B, C, height, width) as the recipe's `augment` says; in evaluation `places` is None."""
    if places is None:
        return pixels
    numbers = [np.random.default_rng((recipe.seed, place)).uniform(-1, 1, 6) for place in places]
    return affine(pixels, recipe.data.augment, torch.tensor(np.stack(numbers, axis=1), dtype=torch.float32))


def affine(pixels: Tensor, augmentation: Augmentation, draws: Tensor) -> Tensor:
    """Change each image (B, C, height, width) affinely; its darkest value fills what enters at the border.

    `draws` (6, B) in [-1, 1] are shares of the augmentation's bounds: of the rotation, the scale of width and of
    height, the shear, the shift to the right and that down.
    """
    height, width = pixels.shape[2:]
    degrees, shift, scale, shear = astuple(augmentation)
    angle = draws[0] * math.radians(degrees)
    wide, high = 1 + draws[1:3] * scale
    slant = draws[3] * shear
    # Shifts are in pixels, and an image spans two units.
    right, down = draws[4] * shift * 2 / width, draws[5] * shift * 2 / height
    first = torch.stack((angle.cos() * wide, slant - angle.sin() * high, right), dim=-1)
    second = torch.stack((angle.sin() * wide, angle.cos() * high, down), dim=-1)
    grid = F.affine_grid(torch.stack((first, second), dim=1), list(pixels.shape), align_corners=False)
    dark = pixels.amin((1, 2, 3), keepdim=True)
    return F.grid_sample(pixels - dark, grid, padding_mode="zeros", align_corners=False) + dark
