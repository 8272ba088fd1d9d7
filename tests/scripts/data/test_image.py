"""Every kind of picture is read as what it shows, and what is none is refused in one sentence."""

from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.scripts.data.image import read_image, to_rgb
from qkv.scripts.data.validation import check_image

NOISE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = NOISE[..., 0]


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_of_16_bits_is_the_grey_of_8(kind: str) -> None:
    read = read_image(saved(Image.fromarray(GREY.astype(np.uint16) * 257), kind))
    assert read.mode == "RGB" and np.array_equal(np.asarray(read), np.repeat(GREY[..., None], 3, axis=2))
    every = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    assert np.array_equal(np.asarray(read_image(saved(Image.fromarray(every), kind)))[..., 0], (every / 257).round())
    assert np.asarray(read_image(saved(Image.fromarray(np.uint16([[0, 128, 129, 65535]])), kind)))[
        0, :, 0
    ].tolist() == [*(0, 0, 1, 255)]


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(NOISE),
        Image.fromarray(GREY),
        Image.fromarray(NOISE).quantize(16),
        Image.fromarray(np.dstack((NOISE, GREY))),
        Image.fromarray(NOISE[:1, :1]),
        Image.fromarray(GREY > 99),
    ],
    ids=lambda image: image.mode,
)
def test_other_kinds_are_as_pillow_reads_them(image: Image.Image) -> None:
    assert np.array_equal(np.asarray(read_image(saved(image))), np.asarray(image.convert("RGB")))


def test_a_picture_says_no_more_pixels_than_its_bytes_can_hold() -> None:
    data = bytearray(saved(Image.fromarray(NOISE), "GIF"))
    data[6:10] = (8000).to_bytes(2, "little") * 2
    with pytest.raises(ValueError, match=f"{len(data)} bytes cannot hold the 8000 x 8000 pixels that it says it has"):
        read_image(bytes(data))
    blank = Image.new("1", (4960, 7016), 1)  # a page of 600 dots per inch
    assert read_image(saved(blank, "TIFF", compression="group4")).size == blank.size


def test_prints_and_turned_photographs_are_as_they_are_meant(tmp_path: Path) -> None:
    path, turned = tmp_path / "print.jpg", Image.Exif()
    path.write_bytes(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(np.asarray(read_image(path), int) - (255, 0, 0)).max() < 40
    turned[0x0112] = 6  # a quarter to the right
    photograph = saved(Image.fromarray(NOISE), exif=turned)
    for image in (read_image(photograph), check_image({"bytes": photograph})):
        assert np.array_equal(np.asarray(image), np.rot90(NOISE, -1))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "these bytes is empty; copy it again"),
        (b"no picture", "these bytes is no image of a known format; save it as PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "these bytes is no image of a known format"),
        (saved(Image.fromarray(NOISE), "DDS"), "these bytes is no image of a known format"),
        (saved(Image.fromarray(NOISE.repeat(9, 0).repeat(9, 1)))[:300], "is a damaged image .*; copy it again"),
        (saved(Image.fromarray(np.float32(GREY)), "TIFF"), "mode 'F' does not say which number is white"),
    ],
)
def test_what_is_none_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_image(data)


@pytest.mark.filterwarnings("ignore")
def test_no_byte_makes_another_error() -> None:
    """A byte that stands for the number of samples makes Pillow raise KeyError, and others TypeError."""
    picture = saved(Image.fromarray(NOISE), "TIFF")
    for at in range(len(picture)):
        for byte in (0, 1, 255):
            with suppress(ValueError):
                read_image(picture[:at] + bytes([byte]) + picture[at + 1 :])


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "JPEG"])
def test_known_formats_are_read(kind: str) -> None:
    assert (
        read_image(saved(Image.fromarray(NOISE), kind)).size
        == check_image({"bytes": saved(Image.fromarray(NOISE), kind)}).size
        == (7, 5)
    )


def test_whole_numbers_without_a_white_are_refused() -> None:
    with pytest.raises(ValueError, match="mode 'I' does not say"):
        to_rgb(Image.fromarray(np.int32(GREY)))
