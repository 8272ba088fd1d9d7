"""Pictures of a page are what the model reads."""

import io
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image

from qkv.scripts.attention_view.media import image_picture, png, power_spectrogram, spectrogram_picture


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_the_normalisation_of_the_processor_is_undone() -> None:
    image = torch.rand(3, 300, 240)
    processor = SimpleNamespace(do_normalize=True, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])
    normalised = (image - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    shown = pixels(image_picture(normalised, processor))
    assert np.abs(shown / 255 - image.permute(1, 2, 0).numpy()).max() < 0.003


def test_pixels_of_another_range_fill_that_of_a_picture() -> None:
    shown = pixels(image_picture(torch.linspace(-2, 6, 300 * 300).view(1, 300, 300)))
    assert (shown.min(), shown.max()) == (0, 255) and shown.ndim == 2


def test_small_images_are_enlarged_pixel_by_pixel_and_large_ones_made_smaller() -> None:
    small = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert (pixels(png(small))[::28, ::28] == small).all()
    assert max(Image.open(io.BytesIO(png(np.zeros((500, 1000), dtype=np.uint8)))).size) == 448


def test_a_tone_is_dark_at_its_frequency() -> None:
    tone = torch.sin(2 * np.pi * 2000 * torch.arange(16000) / 16000)
    shown = pixels(spectrogram_picture(power_spectrogram(tone)))
    row = int(shown.mean(1).argmin())
    assert abs((1 - row / len(shown)) * 8000 - 2000) < 100  # low frequencies are at the bottom
    assert pixels(spectrogram_picture(power_spectrogram(tone[:100]))).size
