"""Read images as pipelines take them, rescale the boxes of padded ones, and change training images at random."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F

from qkv.scripts.recipes.schema import Augmentation, Recipe

Image.init()
# Pillow's formats, but those that it does not decode itself: for EPS it starts Ghostscript.
PILLOW = frozenset(Image.OPEN) - {"EPS", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"}


@contextmanager
def opened_image(data: bytes) -> Iterator[Image.Image]:
    """Open an image of a known format; ValueError for another file, or a damaged one."""
    try:
        with Image.open(BytesIO(data), formats=tuple(PILLOW)) as image:
            yield image
    except UnidentifiedImageError:
        raise ValueError("no image of a known format; save it as PNG") from None
    except Image.DecompressionBombError:
        raise ValueError(
            f"an image of more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels; make it smaller"
        ) from None
    except Exception as error:  # damaged files make Pillow raise errors of any kind
        raise ValueError(f"a damaged image ({str(error) or type(error).__name__}); copy it again") from None


def upright_image(data: bytes) -> Image.Image:
    """Return an image as its photographer saw it, decoded to its last pixel, in RGB of 8 bits."""
    with opened_image(data) as image:
        ImageOps.exif_transpose(image, in_place=True)  # a copy would take the memory of the image again
    return to_rgb(image)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB of 8 bits; ValueError for a mode whose white is unknown."""
    if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):  # whose white is 2^16 - 1 in Pillow
        raise ValueError(f"an image of mode {image.mode!r} does not say which number is white; save it with 8 bits")
    if image.mode.startswith("I"):  # rounded, in whole numbers: floats would take four times the memory
        grey = np.minimum(np.asarray(image), 2**16 - 129)
        grey += 128
        grey //= 257
        image = Image.fromarray(grey.astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:  # without Pillow's warning
        image = image.convert("RGBA")
    return image.convert("RGB")


def image_notes(data: bytes) -> list[str]:
    """Return in which ways `upright_image` changes an image: as in pipelines, transparency is left out."""
    frames = "images of several frames, of which the first is read"
    try:
        with opened_image(data) as image:
            found = {
                "images with transparency, whose stored colours are read": image.has_transparency_data,
                "images of more than 8 bits, read as 8": image.mode.startswith("I"),
                "images turned upright by EXIF": image.getexif().get(ExifTags.Base.Orientation, 1) > 1,
                frames: getattr(image, "is_animated", False),
            }
    except ValueError:  # for a later frame
        return [frames]
    return [note for note, is_true in found.items() if is_true]


def stored_size(data: bytes) -> tuple[tuple[int, int], int]:
    """Return width and height of a stored image, and its EXIF orientation."""
    with opened_image(data) as image:
        return image.size, image.getexif().get(ExifTags.Base.Orientation, 1)


def turned_box(box: Sequence[float], size: tuple[int, int], orientation: int) -> list[float]:
    """Return a box (left, top, width, height) of a stored image where it is once the image is upright.

    Source: orientations: Exif 2.32, §4.6.4
    """
    left, top, width, height = box
    across, down = size
    if orientation >= 5:
        left, top, width, height, across, down = top, left, height, width, down, across
    left = across - left - width if orientation in (2, 3, 6, 7) else left
    top = down - top - height if orientation in (3, 4, 7, 8) else top
    return [left, top, width, height]


def unpadded_boxes(batch: dict[str, Any]) -> dict[str, Any]:
    """Rescale the boxes of a `DetrImageProcessor` batch from parts of the padded image to parts of each image alone.

    The processor reads a model's boxes as the latter but gives the former, so a model trained on these finds the
    objects of padded images in the wrong place. Shapes: pixel_mask (B, height, width); boxes (N, 4) of each image,
    center x, center y, width, height.
    """
    mask = batch["pixel_mask"]
    height, width = mask.shape[1:]
    labels = []
    for own, target in zip(mask, batch["labels"], strict=True):
        rows, columns = int(own[:, 0].sum()), int(own[0].sum())
        scale = torch.tensor([width / columns, height / rows] * 2)
        labels.append({**target, "boxes": target["boxes"] * scale.to(target["boxes"])})
    return {**batch, "labels": labels}


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
