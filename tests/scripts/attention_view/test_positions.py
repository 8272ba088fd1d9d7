"""Names of positions, the grids of patches, and pictures of images and sounds."""

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

import stock_folders
from qkv.scripts.attention.statistics import grid_of
from qkv.scripts.attention_view.positions import (
    LONGEST,
    frames,
    image_picture,
    objects,
    patches,
    png,
    shortened,
    spectrogram_picture,
    token_labels,
)


@pytest.mark.parametrize(
    ("count", "height", "width", "patch", "expected"),
    [
        (197, 224, 224, 16, ((14, 14), 1)),
        (196, 224, 224, [16, 16], ((14, 14), 0)),
        (7, 4, 6, 2, ((2, 3), 1)),
        (850, 800, 1066, None, ((25, 34), 0)),
        (17, 16, 16, None, ((4, 4), 1)),
        (211, 224, 224, 16, None),
    ],
)
def test_the_grid_follows_from_the_patches_or_the_shape(
    count: int, height: int, width: int, patch: Any, expected: Any
) -> None:
    assert grid_of(count, height, width, patch) == expected


def test_patches_frames_and_objects_are_named(tmp_path: Any) -> None:
    own = patches(8, torch.rand(3, 4, 6), 2, None)
    assert own.labels == ["class", "extra 1", "(1, 1)", "(1, 2)", "(1, 3)", "(2, 1)", "(2, 2)", "(2, 3)"]
    assert (own.grid, own.prefix) == ((2, 3), 2)
    assert frames(4, 2.0, b"").labels == ["0.00 s", "0.50 s", "1.00 s", "1.50 s"]
    assert frames(2, None, b"").labels == ["frame 0", "frame 1"]
    assert objects(["a"], [(0.5, 0.4, 0.2, 0.6)]).boxes == [[0.4, 0.1, 0.2, 0.6]]
    tokenizer = AutoTokenizer.from_pretrained(stock_folders.gpt2(tmp_path / "gpt2"))
    ids = tokenizer("a é")["input_ids"]
    assert token_labels(ids, tokenizer) == ["a", " ", "Ã", "©"]  # parts of a character by their names
    assert token_labels(ids[:1], None) == [str(ids[0])]
    assert shortened("a" * (LONGEST + 1)) == "a" * (LONGEST - 1) + "…" and shortened("a" * LONGEST) == "a" * LONGEST


def pixels(content: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_pictures_are_the_input_of_the_model() -> None:
    image, mean, deviation = torch.rand(3, 300, 240), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    processor = SimpleNamespace(do_normalize=True, image_mean=mean, image_std=deviation)
    normalised = (image - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)
    assert np.abs(pixels(image_picture(normalised, processor)) / 255 - image.permute(1, 2, 0).numpy()).max() < 0.003
    shown = pixels(image_picture(torch.linspace(-2, 6, 300 * 300).view(1, 300, 300)))
    assert (shown.min(), shown.max()) == (0, 255) and shown.ndim == 2
    small = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert (pixels(png(small)) == small).all()
    assert max(pixels(png(np.zeros((500, 1000), dtype=np.uint8))).shape) == 448


def test_a_tone_is_dark_at_its_frequency() -> None:
    tone = torch.sin(2 * np.pi * 2000 * torch.arange(16000) / 16000)
    shown = pixels(spectrogram_picture(tone))
    row = int(shown.mean(1).argmin())
    assert abs((1 - row / len(shown)) * 8000 - 2000) < 100  # low frequencies are at the bottom
    assert pixels(spectrogram_picture(tone[:100])).size
