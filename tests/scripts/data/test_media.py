"""Pictures and recordings are read as what they show and say, and damaged ones are refused in one sentence."""

import io
import struct
import tracemalloc
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.audio import read_wav, write_wav
from qkv.scripts.data.image import read_image, to_rgb

NOISE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = NOISE[..., 0]
RATE = 16_000
TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_a_picture_says_no_more_pixels_than_its_bytes_can_hold() -> None:
    data = bytearray(saved(Image.fromarray(NOISE), "GIF"))
    data[6:10] = (8000).to_bytes(2, "little") * 2
    with raises_sentence(str(len(data)), "8000 x 8000"):
        read_image(bytes(data))
    blank = Image.new("1", (4960, 7016), 1)  # a page of 600 dots per inch
    assert read_image(saved(blank, "TIFF", compression="group4")).size == blank.size


def test_prints_and_turned_photographs_are_as_they_are_meant(tmp_path: Path) -> None:
    path, turned = tmp_path / "print.jpg", Image.Exif()
    path.write_bytes(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(np.asarray(read_image(path), int) - (255, 0, 0)).max() < 40
    turned[0x0112] = 6  # a quarter to the right
    assert np.array_equal(np.asarray(read_image(saved(Image.fromarray(NOISE), exif=turned))), np.rot90(NOISE, -1))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"no picture", "known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "known format"),
        (saved(Image.fromarray(NOISE.repeat(9, 0).repeat(9, 1)))[:300], "damaged"),
        (saved(Image.fromarray(np.float32(GREY)), "TIFF"), "'F'"),
    ],
)
def test_unreadable_pictures_are_refused(data: bytes, said: str) -> None:
    with raises_sentence(said):
        read_image(data)
    with raises_sentence("'I'"):
        to_rgb(Image.fromarray(np.int32(GREY)))


def recorded(samples: np.ndarray, *, width: int = 2, rate: int = RATE, channels: int = 1) -> bytes:
    """A wav file of whole numbers, as the standard library writes it."""
    whole = np.round(samples * (2 ** (8 * width - 1) - 1)).astype(np.int64) + 128 * (width == 1)
    packed = b"".join(int(number).to_bytes(width, "little", signed=width > 1) for number in whole)
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", "not compressed"))
        file.writeframes(packed)
    return data.getvalue()


def test_stereo_at_eleven_kilohertz_is_the_mean_at_sixteen(tmp_path: Path) -> None:
    time = np.arange(2 * 11_025) / 11_025
    sides = np.stack((np.sin(2 * np.pi * 440 * time), np.zeros_like(time)), axis=1).ravel()
    (tmp_path / "a.wav").write_bytes(recorded(0.8 * sides, rate=11_025, channels=2))
    found = read_wav(tmp_path / "a.wav")["raw"]
    spectrum = np.abs(np.fft.rfft(found))
    assert len(found) == 2 * RATE and spectrum.argmax() == 880
    assert spectrum[880] / len(found) == pytest.approx(0.2, rel=0.02)  # half of 0.8, halved


def test_a_rate_that_nobody_uses_is_resampled_in_little_memory() -> None:
    rate = 383_987  # a prime number
    data = recorded(np.sin(2 * np.pi * 440 * np.arange(rate) / rate), rate=rate)
    tracemalloc.start()
    found = read_wav(data)["raw"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(len(found) - RATE) <= 1 and most < 25 * 2**20  # it was 240 MiB
    expected = np.sin(2 * np.pi * 440 * np.arange(RATE - 50) / RATE)
    assert np.abs(found[: RATE - 50] - expected)[50:].max() < 2 * np.pi * 440 * 50e-6


def patched(at: int, form: str, number: int) -> bytes:
    """Another number in the header."""
    data = bytearray(recorded(TONE))
    struct.pack_into(form, data, at, number)
    return bytes(data)


@pytest.mark.parametrize("length", [0x7FFFF000, 0xFFFFFFFF])
def test_a_stream_does_not_know_its_length(length: int) -> None:
    assert np.array_equal(read_wav(patched(40, "<I", length))["raw"], read_wav(recorded(TONE))["raw"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"This is no sound at all, but words.", "libsndfile"),
        (recorded(TONE)[:30], "libsndfile"),
        (recorded(np.zeros(0)), "no sound"),
        (recorded(TONE)[:16044], "cut short"),
        (patched(24, "<I", 2**31 - 1), "2147483647 samples a second"),
        (patched(34, "<H", 176), ""),
        (patched(16, "<I", 0x74000010), ""),
    ],
)
def test_damaged_recordings_are_refused(data: bytes, said: str) -> None:
    with raises_sentence(said):
        read_wav(data)


def test_written_samples_are_read_again_as_they_were() -> None:
    samples = np.array([0.0, 0.5, -1.0, 1 / 32768], np.float32)
    assert np.array_equal(read_wav(write_wav(samples))["raw"], samples)
    assert np.array_equal(read_wav(write_wav(np.array([1.0], np.float32)))["raw"], [32767 / 32768])
    assert not read_wav(recorded(np.zeros(500)))["raw"].any()
