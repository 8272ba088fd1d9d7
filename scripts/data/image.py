"""How does a picture's file become what a pipeline sees? Red, green and blue of 8 bits, whatever the file holds.

transformers' pipelines take 16-bit grey for white wherever it is above 255; what is made here they take as it is.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError


def read_image(source: str | Path | bytes) -> Image.Image:
    """The picture of a file or of its bytes, upright, for an image pipeline.

    Any kind that Pillow opens, with 16 bits of grey as well. Raises ValueError for what is no picture, or is cut short.
    """
    name = "these bytes" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if not data:
        raise ValueError(f"{name} is empty; copy it again")
    try:
        with Image.open(BytesIO(data)) as found:
            return coloured(ImageOps.exif_transpose(found))
    except UnidentifiedImageError:
        raise ValueError(f"{name} is no picture of a known kind; save it as PNG") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} is a damaged picture ({error}); copy it again") from None


def coloured(image: Image.Image) -> Image.Image:
    """The same in red, green and blue of 8 bits; ValueError for numbers of which none is known to be white."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"a picture of mode {image.mode!r} does not say which number is white; save it with 8 bits")
    return image.convert("RGB")
