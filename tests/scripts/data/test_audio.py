"""What is in a wav file comes out of it, whatever its form, and a broken one is told in a sentence."""

import io
import struct
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest

from qkv.scripts.data.audio import read_wav, write_wav

RATE = 16_000
TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)


def packed(samples: np.ndarray, width: int) -> bytes:
    """Numbers from -1 to 1 as those of a wav file."""
    whole = np.round(samples * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    if width == 1:
        return (whole + 128).astype(np.uint8).tobytes()
    return b"".join(int(number).to_bytes(width, "little", signed=True) for number in whole)


def recorded(samples: np.ndarray, *, width: int = 2, rate: int = RATE, channels: int = 1) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", "not compressed"))
        file.writeframes(packed(samples, width))
    return data.getvalue()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_any_width_are_numbers(width: int) -> None:
    found = read_wav(recorded(TONE, width=width))
    assert found["sampling_rate"] == RATE and found["raw"].dtype == np.float32
    assert np.abs(found["raw"] - TONE).max() <= 2.0 ** (1 - 8 * min(width, 3)) + 1e-7


def test_eight_bits_in_stereo_at_eleven_kilohertz() -> None:
    rate = 11_025
    time = np.arange(2 * rate) / rate
    sides = np.stack((np.sin(2 * np.pi * 440 * time), np.zeros_like(time)), axis=1).ravel()
    found = read_wav(recorded(0.8 * sides, width=1, rate=rate, channels=2))["raw"]
    assert len(found) == 2 * RATE
    spectrum = np.abs(np.fft.rfft(found))
    assert spectrum.argmax() == 880 and spectrum[880] / len(found) == pytest.approx(
        0.2, rel=0.02
    )  # half of 0.8, halved


def test_a_file_is_read_by_name_and_at_another_rate(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(recorded(TONE))
    assert np.array_equal(read_wav(tmp_path / "a.wav")["raw"], read_wav(str(tmp_path / "a.wav"))["raw"])
    assert len(read_wav(tmp_path / "a.wav", 8_000)["raw"]) == 8_000


def test_a_rate_that_nobody_uses_is_resampled_in_little_memory() -> None:
    """By a filter that is no longer than for other rates, and without another pitch."""
    rate = 383_987  # a prime number
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    data = recorded(tone, rate=rate)
    tracemalloc.start()
    found = read_wav(data)["raw"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(len(found) - RATE) <= 1 and most < 25 * 2**20  # it was 240 MiB
    expected = np.sin(2 * np.pi * 440 * np.arange(RATE - 50) / RATE)
    assert np.abs(found[: RATE - 50] - expected)[50:].max() < 2 * np.pi * 440 * 50e-6


def test_silence_is_sound() -> None:
    assert not read_wav(recorded(np.zeros(500)))["raw"].any()


def with_length(data: bytes, length: int) -> bytes:
    """Another length of the samples in the header."""
    return data[:40] + struct.pack("<I", length) + data[44:]


@pytest.mark.parametrize("length", [0x7FFFF000, 0xFFFFFFFF])
def test_a_stream_does_not_know_its_length(length: int) -> None:
    data = recorded(TONE)
    assert np.array_equal(read_wav(with_length(data, length))["raw"], read_wav(data)["raw"])


def patched(at: int, form: str, number: int) -> bytes:
    """Another number in the header."""
    data = bytearray(recorded(TONE))
    struct.pack_into(form, data, at, number)
    return bytes(data)


BROKEN = {
    "empty": (b"", "these bytes is empty; record it again"),
    "text": (
        b"This is no sound at all, but words.",
        "is not a wav file of whole numbers (file does not start with RIFF id)",
    ),
    "a header alone": (recorded(TONE)[:30], "is not a wav file of whole numbers"),
    "no samples": (recorded(np.zeros(0)), "these bytes holds no sound; record it again"),
    "half of it": (recorded(TONE)[:16044], "these bytes is cut short: it holds 0.50 of 1.00 s; copy it again"),
    "two thousand million samples a second": (
        patched(24, "<I", 2**31 - 1),
        "2147483647 samples a second of 16 bits, expected 1000 to 384000",
    ),
    "no samples a second": (patched(24, "<I", 0), "0 samples a second"),
    "samples of 176 bits": (patched(34, "<H", 176), "of 176 bits, expected 1000 to 384000 of 8, 16, 24 or 32"),
    "a part that is longer than the file": (patched(16, "<I", 0x74000010), "it ends within its header"),
    "floats": (
        recorded(TONE)[:20] + b"\x03\x00" + recorded(TONE)[22:],
        "is not a wav file of whole numbers (unknown format: 3)",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_told_in_a_sentence(name: str) -> None:
    data, sentence = BROKEN[name]
    with pytest.raises(ValueError) as error:
        read_wav(data)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_what_is_written_is_read_again_as_it_was() -> None:
    samples = np.array([0.0, 0.5, -1.0, 1 / 32768], np.float32)
    assert np.array_equal(read_wav(write_wav(samples))["raw"], samples)
    assert np.array_equal(read_wav(write_wav(np.array([1.0], np.float32)))["raw"], [32767 / 32768])
    assert len(read_wav(write_wav(np.zeros(80, np.float32), 8_000))["raw"]) == 160
