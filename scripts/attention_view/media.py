"""Pictures of a page: the image as the model reads it, and the spectrogram of a recording, as PNG."""

import io
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Pixels of the longest side: a small image is enlarged, pixel by pixel.
SMALLEST, LARGEST = 224, 448
WINDOW, HOP = 400, 160  # samples of a frame of a spectrogram and between two, as in speech recognition at 16 kHz


def image_picture(pixels: Tensor, processor: Any = None) -> bytes:
    """Return the pixels (C, height, width) that a model is given as a PNG, without the normalisation of a processor."""
    values = pixels.detach().float().cpu()
    mean, deviation = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    if getattr(processor, "do_normalize", False) and mean is not None and deviation is not None:
        values = values * as_channels(deviation) + as_channels(mean)
    if values.min() < -0.05 or values.max() > 1.05:
        values = (values - values.min()) / (values.max() - values.min())
    bytes_of = (values.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return png(bytes_of[..., 0] if bytes_of.shape[-1] == 1 else bytes_of[..., :3])


def as_channels(values: Any) -> Tensor:
    """Return a number for each channel, to be broadcast over pixels."""
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)


def spectrogram_picture(features: Tensor) -> bytes:
    """Return a spectrogram (frequency, time) as a PNG, dark where it is loud, low frequencies at the bottom."""
    values = features.detach().float().cpu().flip(0)
    low, high = values.quantile(0.02), values.quantile(0.995)
    shares = ((values - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
    return png((255 - shares * 225).round().to(torch.uint8).numpy())


def power_spectrogram(samples: Tensor) -> Tensor:
    """Return the logarithms of the power of samples (N) by frequency and time, to 8 kHz at 16 kHz."""
    if len(samples) < WINDOW:
        samples = torch.nn.functional.pad(samples, (0, WINDOW - len(samples)))
    made = torch.stft(samples.float(), WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    return (made.abs().square() + 1e-8).log()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels (height, width) or (height, width, 3) as a PNG whose longest side suits a page."""
    from PIL import Image

    image = Image.fromarray(pixels)
    longest = max(image.size)
    if longest > LARGEST:
        image.thumbnail((LARGEST, LARGEST))
    elif longest < SMALLEST:
        times = SMALLEST // longest
        image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()
