"""Read images as pipelines take them, and rescale the boxes of padded ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from qkv.scripts.common.files import named_bytes

Image.init()
# Pillow's formats, but those that it does not decode itself: for EPS it starts Ghostscript.
PILLOW = frozenset(Image.OPEN) - {"EPS", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"}

# More pixels than this are believed where each byte of the file holds no more than so many of them: a blank page of a
# fax, which is packed best, has half as many.
LARGE, MOST_PIXELS = 2**24, 100_000


@contextmanager
def opened_image(data: bytes) -> Iterator[Image.Image]:
    """Open an image of a known format; ValueError for what of it cannot be read within the block."""
    try:
        with Image.open(BytesIO(data), formats=tuple(PILLOW)) as image:
            if image.width * image.height > max(LARGE, MOST_PIXELS * len(data)):  # before memory is taken for them
                raise ValueError(f"{len(data)} bytes cannot hold the {image.width} x {image.height} pixels it claims")
            yield image
    except UnidentifiedImageError:
        raise ValueError("no image of a known format; save it as PNG") from None
    except Exception as error:  # damaged files make Pillow raise errors of any kind
        raise ValueError(f"a damaged image ({str(error) or type(error).__name__}); copy it again") from None


def read_image(source: str | Path | bytes) -> Image.Image:
    """Read an image file or its bytes, upright and in RGB of 8 bits, for an image pipeline.

    Any format that Pillow decodes, 16-bit grey included, which transformers' pipelines clip to white above 255.
    ValueError for another file, or a truncated one.
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
    if image.mode.startswith("I;16"):  # rounded, in whole numbers: floats would take four times the memory
        grey = np.minimum(np.asarray(image), 2**16 - 129)
        grey += 128
        grey //= 257
        image = Image.fromarray(grey.astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"an image of mode {image.mode!r} does not say which number is white; save it with 8 bits")
    return image.convert("RGB")


def stored_size(data: bytes) -> tuple[tuple[int, int], int]:
    """Return width and height of an image as it is stored, and the EXIF orientation that it is shown in."""
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
