"""Read images as pipelines take them, and rescale the boxes of padded ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from qkv.scripts.common.files import named_bytes

# What Pillow decodes itself: for EPS it starts Ghostscript, and other formats are rare and less tested.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")

# More pixels than this are believed where each byte of the file holds no more than so many of them: a blank page of a
# fax, which is packed best, has half as many.
LARGE, MOST_PIXELS = 2**24, 100_000


@contextmanager
def opened_image(data: bytes) -> Iterator[Image.Image]:
    """Open an image of a known format; ValueError for what of it cannot be read within the block."""
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            check_pixels(image, len(data))
            yield image
    except UnidentifiedImageError:
        raise ValueError("no image of a known format; save it as PNG") from None
    except Exception as error:  # damaged files make Pillow raise errors of any kind
        raise ValueError(f"a damaged image ({str(error) or type(error).__name__}); copy it again") from None


def check_pixels(image: Image.Image, size: int) -> None:
    """Raise ValueError for more pixels than so many bytes hold, before memory is taken for them."""
    if image.width * image.height > max(LARGE, MOST_PIXELS * size):
        raise ValueError(f"{size} bytes cannot hold the {image.width} x {image.height} pixels that it says it has")


def read_image(source: str | Path | bytes) -> Image.Image:
    """Read the image of a file or of its bytes, upright and in RGB of 8 bits, for an image pipeline.

    PNG, JPEG, WebP, GIF, BMP, TIFF, PPM or JPEG 2000, 16-bit grey included, which transformers' pipelines clip to
    white above 255. Raises ValueError for what is no image, or is truncated.
    """
    name, data = named_bytes(source, "copy it again")
    try:
        return upright_image(data)
    except ValueError as error:
        raise ValueError(f"{name} is {error}") from None


def upright_image(data: bytes) -> Image.Image:
    """Return an image as its photographer saw it, decoded to its last pixel, in RGB of 8 bits."""
    with opened_image(data) as image:
        ImageOps.exif_transpose(image, in_place=True)  # a copy would take the memory of the image again
    return to_rgb(image)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB of 8 bits; ValueError for a mode whose white is unknown."""
    if image.mode.startswith("I;16"):
        image = eight_bits(image)
    if image.mode in ("I", "F"):
        raise ValueError(f"an image of mode {image.mode!r} does not say which number is white; save it with 8 bits")
    return image.convert("RGB")


def eight_bits(image: Image.Image) -> Image.Image:
    """Convert grey of 16 bits to 8, rounded, in whole numbers: floats would take four times the memory."""
    grey = np.minimum(np.asarray(image), 2**16 - 129)
    grey += 128
    grey //= 257
    return Image.fromarray(grey.astype(np.uint8))


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
