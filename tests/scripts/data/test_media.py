"""Images and recordings of every form are read as what they show and say, damaged ones refused, images distorted."""

import io
import struct
import tracemalloc
import wave
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.audio import read_wav, sound_notes, write_wav
from qkv.scripts.data.image import affine, image_notes, to_rgb, upright_image
from qkv.scripts.data.validation import RecordValidation, check_audio, check_image, valid_rows
from qkv.scripts.recipes.schema import Augmentation

NOISE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
PGM = b"P5 7 5 65535\n" + (NOISE[..., 0].astype(np.uint16) * 257).astype(">u2").tobytes()
RATE = 16_000
TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["I;16", "CMYK", "P", "LA", "RGBA", "1", "L"])
def test_images_of_any_mode_are_rgb(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.tiff" if mode in ("I;16", "CMYK") else "x.png")
    ramp = np.linspace(0, 255, 64, dtype=np.uint8).reshape(8, 8)
    sixteen = (ramp * 257.0 - 128 * (ramp % 3 == 1)).astype(np.uint16)  # some are rounded up
    image = Image.fromarray(sixteen) if mode == "I;16" else Image.fromarray(ramp).convert(mode)
    image.save(path)
    read_back = np.asarray(check_image({"path": str(path), "bytes": None}).convert("L"), int)
    assert np.abs(read_back - ramp).max() <= {"1": 255, "CMYK": 2, "P": 2}.get(mode, 0)


def test_prints_and_turned_photographs_are_as_they_are_meant(tmp_path: Path) -> None:
    path, turned = tmp_path / "print.jpg", Image.Exif()
    path.write_bytes(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))
    assert np.abs(np.asarray(upright_image(path.read_bytes()), int) - (255, 0, 0)).max() < 40
    turned[0x0112] = 6  # a quarter to the right
    assert np.array_equal(np.asarray(upright_image(saved(Image.fromarray(NOISE), exif=turned))), np.rot90(NOISE, -1))
    fax = Image.new("1", (4960, 7016), 1)  # a blank page of 600 dots per inch, in a few bytes
    assert upright_image(saved(fax, "TIFF", compression="group4")).size == fax.size


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
     saved(Image.fromarray(NOISE.repeat(9, 0).repeat(9, 1)))[:300],
     saved(Image.fromarray(np.float32(NOISE[..., 0])), "TIFF")],
)  # fmt: skip
def test_unreadable_images_are_refused(data: bytes) -> None:
    with raises_sentence():
        upright_image(data)
    with raises_sentence("'I'"):
        to_rgb(Image.fromarray(np.int32(NOISE[..., 0])))


# RAW has no header, SD2 a second file; Python's files are no files for DWVW.
FORMS = [(form, subtype) for form in soundfile.available_formats() if form not in ("RAW", "SD2")
         for subtype in soundfile.available_subtypes(form) if "DWVW" not in subtype]  # fmt: skip


def test_recordings_of_any_form_are_heard(tmp_path: Path) -> None:
    heard = set()
    for form, subtype in FORMS:
        rate = {"WVE": 8_000, "XI": 44_100}.get(form, RATE)  # the only ones that they hold
        try:
            soundfile.write(tmp_path / "x", TONE, rate, format=form, subtype=subtype)
        except soundfile.SoundFileError:  # which libsndfile reads and does not write
            continue
        samples = check_audio(str(tmp_path / "x"))
        spectrum = np.abs(np.fft.rfft(samples))
        assert abs(len(samples) * rate - RATE**2) < 0.02 * RATE**2, (form, subtype)
        assert abs(spectrum.argmax() * RATE / len(samples) - 440 * rate / RATE) < 5, (form, subtype)
        assert abs(samples.std() - TONE.std()) < 0.02, (form, subtype)
        heard |= {form, subtype}
    assert {"WAVEX", "AIFF", "CAF", "FLAC", "OPUS", "VORBIS", "MPEG_LAYER_III", "PCM_24", "FLOAT", "GSM610"} < heard


def test_changes_of_files_are_noted(tmp_path: Path) -> None:
    frames, turned = [Image.fromarray(NOISE), Image.fromarray(255 - NOISE)], Image.Exif()
    turned[0x0112] = 6
    palette = frames[0].quantize(8)
    kinds = {
        "transparency": [saved(frames[0].convert("RGBA")), saved(palette, transparency=bytes([0, 128]))],
        "frames": [saved(frames[0], kind, save_all=True, append_images=frames[1:]) for kind in ("GIF", "TIFF", "PNG")],
        "8 bits": [saved(Image.fromarray(np.uint16(NOISE[..., 0]) * 257)), PGM],
        "EXIF": [saved(frames[0], exif=turned)],
    }
    for word, files in kinds.items():
        assert [word in note for data in files for note in image_notes(data)] == [True] * len(files)
    gif = saved(frames[0].resize((99, 99)), "GIF", save_all=True, append_images=frames[1:])
    assert [bool(image_notes(gif[:end])) for end in range(len(gif) - 60, len(gif), 5)] == [True] * 12
    assert image_notes(saved(frames[0])) == sound_notes(recorded(TONE)) == []
    assert len(sound_notes(recorded(TONE, rate=44_100, channels=2))) == 2
    images = [{"bytes": data, "path": None} for data in chain(*kinds.values(), [b"PNG?", saved(frames[0])])]
    log, features = RecordValidation(0.5), Features({"image": ImageFeature(decode=False)})
    assert len(valid_rows(Dataset.from_dict({"image": images}, features), {"image": check_image}, log)) == 9
    assert sorted(log.mended.values()) == [1, 2, 2, 3]


@pytest.mark.filterwarnings("error")
def test_images_of_few_colours_and_first_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    palette = Image.fromarray(NOISE).quantize(8)
    clear = np.asarray(upright_image(saved(palette, transparency=bytes([0, 128]))))
    assert np.array_equal(clear, np.asarray(palette.convert("RGB")))
    assert np.array_equal(np.asarray(upright_image(PGM))[..., 0], NOISE[..., 0])
    frames = [Image.fromarray(NOISE), Image.fromarray(255 - NOISE)]
    assert np.array_equal(np.asarray(upright_image(saved(frames[0], save_all=True, append_images=frames[1:]))), NOISE)
    assert upright_image(saved(Image.new("1", (1, 1), 1))).getpixel((0, 0)) == (255, 255, 255)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with raises_sentence("20", "pixels"):
        upright_image(saved(Image.fromarray(NOISE)))


def recorded(samples: np.ndarray, rate: int = RATE, channels: int = 1) -> bytes:
    """A wav file of 16 bits, as the standard library writes it."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", "not compressed"))
        file.writeframes(np.round(samples * 32767).astype("<i2").tobytes())
    return data.getvalue()


def test_stereo_at_eleven_kilohertz_is_the_mean_at_sixteen(tmp_path: Path) -> None:
    time = np.arange(2 * 11_025) / 11_025
    sides = np.stack((np.sin(2 * np.pi * 440 * time), np.zeros_like(time)), axis=1).ravel()
    (tmp_path / "a.wav").write_bytes(recorded(0.8 * sides, rate=11_025, channels=2))
    found = read_wav((tmp_path / "a.wav").read_bytes())["raw"]
    spectrum = np.abs(np.fft.rfft(found))
    assert len(found) == 2 * RATE and spectrum.argmax() == 880
    assert spectrum[880] / len(found) == pytest.approx(0.2, rel=0.02)  # half of 0.8, halved
    slow = read_wav((tmp_path / "a.wav").read_bytes(), 8_000)
    assert slow["sampling_rate"] == 8_000 and len(slow["raw"]) == 16_000  # of two seconds


def test_an_odd_rate_is_resampled_in_little_memory() -> None:
    rate = 383_987  # a prime number
    data = recorded(np.sin(2 * np.pi * 440 * np.arange(rate) / rate), rate=rate)
    tracemalloc.start()
    found = read_wav(data)["raw"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(len(found) - RATE) <= 1 and most < 25 * 2**20  # it was 240 MiB
    assert np.abs(found[: RATE - 50] - 2 * TONE[:-50])[50:].max() < 2 * np.pi * 440 * 50e-6


def patched(at: int, form: str, number: int) -> bytes:
    """Another number in the header."""
    data = bytearray(recorded(TONE))
    struct.pack_into(form, data, at, number)
    return bytes(data)


@pytest.mark.parametrize("length", [0x7FFFF000, 0xFFFFFFFF])
def test_a_stream_does_not_know_its_length(length: int) -> None:
    assert np.array_equal(read_wav(patched(40, "<I", length))["raw"], read_wav(recorded(TONE))["raw"])


@pytest.mark.parametrize(
    "data",
    [b"", b"This is no sound at all, but words.", recorded(TONE)[:30], recorded(np.zeros(0)), recorded(TONE)[:16044],
     patched(24, "<I", 2**31 - 1), patched(34, "<H", 176), patched(16, "<I", 0x74000010)],
)  # fmt: skip
def test_damaged_recordings_are_refused(data: bytes) -> None:
    with raises_sentence():
        read_wav(data)


def test_written_samples_are_read_again_as_they_were() -> None:
    samples = np.array([0.0, 0.5, -1.0, 1 / 32768, 32767 / 32768], np.float32)
    assert np.array_equal(read_wav(write_wav(samples))["raw"], samples)
    assert not read_wav(recorded(np.zeros(500)))["raw"].any()


# Augmentation ---------------------------------------------------------------------------------------------------------


FURTHEST = torch.ones(6, 2)


def test_a_distortion_of_nothing_changes_nothing() -> None:
    pixels = torch.randn(2, 3, 8, 8)
    assert (affine(pixels, Augmentation(), FURTHEST) - pixels).abs().max() < 1e-5


def test_a_shift_is_counted_in_pixels() -> None:
    image = torch.rand(2, 1, 8, 6)
    moved = affine(image, Augmentation(shift=1.0), FURTHEST)
    assert (moved[:, :, :-1, :-1] - image[:, :, 1:, 1:]).abs().max() < 1e-5
    dark = image.amin((1, 2, 3), keepdim=True)
    assert (moved[:, :, -1:] - dark).abs().max() < 1e-5 and (moved[..., -1:] - dark).abs().max() < 1e-5


def test_a_rotation_by_a_right_angle_is_one() -> None:
    image = torch.rand(2, 1, 8, 8)
    turned = affine(image, Augmentation(degrees=90), FURTHEST)
    assert (turned - image.rot90(1, (2, 3))).abs().max() < 1e-4
