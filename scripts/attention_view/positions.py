"""The positions that attend and are attended to: tokens, patches of an image, frames of a recording, object queries."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Kind = Literal["tokens", "patches", "frames", "objects"]
LONGEST = 80  # characters of a label that are kept
LARGEST = 448  # pixels of the longest side of a picture
WINDOW, HOP = 400, 160  # samples of a frame of a spectrogram and between two, as in speech recognition at 16 kHz


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of one sequence, in their order.

    Patches fill `grid`, its rows and columns, after `prefix` other tokens. `picture` is a PNG of the image or of the
    spectrogram. `boxes` (left, top, width, height) of objects are shares of the picture. `rest` counts positions that
    were left out; as keys they share one more column. The first `prompt` tokens were not written by the model.
    """

    kind: Kind
    labels: list[str]
    grid: tuple[int, int] | None = None
    prefix: int = 0
    picture: bytes | None = None
    boxes: list[list[float]] | None = None
    rest: int = 0
    prompt: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Sequence[int], *, rest: int = 0) -> "Positions":
        """Return some positions; `rest` more were left out."""
        labels = [self.labels[index] for index in indices]
        boxes = None if self.boxes is None else [self.boxes[index] for index in indices]
        prompt = sum(index < self.prompt for index in indices)
        return replace(self, labels=labels, boxes=boxes, rest=self.rest + rest, prompt=prompt)


def token_labels(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token; its name in the vocabulary where it is a part of a character or has no text."""
    if tokenizer is None:
        return [str(number) for number in ids]
    labels = []
    for number in ids:
        text = tokenizer.decode([number])
        is_part = not text or "\N{REPLACEMENT CHARACTER}" in text
        labels.append(shortened(str(tokenizer.convert_ids_to_tokens(number)) if is_part else text))
    return labels


def shortened(text: str, longest: int = LONGEST) -> str:
    """Shorten a text to at most `longest` characters, the last of them …."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def image_picture(pixels: Tensor, processor: Any = None) -> bytes:
    """Return the pixels (C, height, width) of an input as a PNG, without the normalisation of a processor."""
    values = pixels.detach().float().cpu()
    mean, deviation = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    if getattr(processor, "do_normalize", False) and mean is not None and deviation is not None:
        scale, shift = (torch.as_tensor(each, dtype=torch.float32).reshape(-1, 1, 1) for each in (deviation, mean))
        values = values * scale + shift
    if values.min() < -0.05 or values.max() > 1.05:
        values = (values - values.min()) / (values.max() - values.min())
    shown = (values.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return png(shown[..., 0] if shown.shape[-1] == 1 else shown[..., :3])


def spectrogram_picture(features: Tensor) -> bytes:
    """Return a spectrogram (frequency, time) as a PNG, dark where it is loud, low frequencies at the bottom.

    Of samples (N) it is the logarithm of the power by frequency and time.
    """
    if features.ndim == 1:
        samples = torch.nn.functional.pad(features.float(), (0, max(WINDOW - len(features), 0)))
        power = torch.stft(samples, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True).abs().square()
        features = (power + 1e-8).log()
    values = features.detach().float().cpu().flip(0)
    low, high = values.quantile(0.02), values.quantile(0.995)
    shares = ((values - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
    return png((255 - shares * 225).round().to(torch.uint8).numpy())


def png(pixels: Any) -> bytes:
    """Return pixels (height, width) or (height, width, 3) as a PNG whose longest side suits a page."""
    from PIL import Image

    image, content = Image.fromarray(np.asarray(pixels)), io.BytesIO()
    image.thumbnail((LARGEST, LARGEST))  # which never enlarges
    image.save(content, "PNG", optimize=True)
    return content.getvalue()
