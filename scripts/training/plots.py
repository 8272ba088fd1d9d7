"""Plot the loss curve, the attention of the class token, and the cross-attention of generated tokens."""

import io
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.common.files import write_atomically
from qkv.scripts.data.collate import IGNORED

# The curve of a running training is drawn after so many seconds at the earliest, and in that share of its time.
SHORTEST, SHARE = 5.0, 0.01


@dataclass
class LiveCurve:
    """Draw the curve of a training that goes on now and then, so seldom that it costs nothing to speak of."""

    path: Path
    read: Callable[[], list[dict[str, Any]]]
    clock: Callable[[], float] = time.monotonic
    drawn: float = field(init=False)
    pause: float = SHORTEST

    def __post_init__(self) -> None:
        self.drawn = self.clock()

    def update(self) -> None:
        """Draw what is logged so far, unless that was done a moment ago; the picture appears whole."""
        began = self.clock()
        if began - self.drawn < self.pause:
            return
        content = io.BytesIO()
        draw_curve(self.read(), content)
        write_atomically(self.path, content.getvalue())
        self.drawn = self.clock()
        self.pause = max(SHORTEST, (self.drawn - began) / SHARE)


def draw_curve(lines: list[dict[str, Any]], path: Path | BinaryIO) -> None:
    """Plot losses by step, and every other metric that was logged more than once, from a run's metrics."""
    trained = [line for line in lines if "split" not in line]
    evaluated = [line for line in lines if "split" in line]
    taken = Counter((line["split"], name) for line in evaluated for name in line)
    names = sorted({name for (_, name), count in taken.items() if count > 1} - {"step", "split", "loss"})
    figure = Figure(figsize=(5 * (1 + len(names)), 3.5), layout="constrained")
    axes = figure.subplots(1, 1 + len(names), squeeze=False)
    axes[0, 0].plot(*columns(trained, "loss"), label="train", linewidth=1)
    axes[0, 0].set_yscale("log")
    for axis, name in zip(axes[0], ["loss", *names], strict=True):
        for split in sorted({line["split"] for line in evaluated}):
            axis.plot(*columns([line for line in evaluated if line["split"] == split], name), label=split, marker=".")
        axis.set(xlabel="step", title=name)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=150)


def columns(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of one metric."""
    return [line["step"] for line in lines], [line[name] for line in lines]


def draw_attention(model: PreTrainedModel, pixel_values: Tensor, titles: list[str], path: Path) -> None:
    """Plot the class token's attention over the patches of images (B, C, height, width), a column per layer.

    Weights are averaged over heads, and the colours of each map span 0 to its maximum.
    """
    with torch.no_grad():
        attentions = model(pixel_values=pixel_values, output_attentions=True).attentions
    prefix, grid = model.config.num_prefix_tokens, model.config.grid
    maps = torch.stack([weights.mean(1)[:, 0, prefix:].unflatten(-1, grid) for weights in attentions]).cpu().numpy()
    rows, layers = len(pixel_values), len(maps)
    figure = Figure(figsize=(1.3 * (1 + layers), 1.45 * rows), layout="constrained")
    figure.suptitle("Attention of the class token, mean over heads", fontsize=10)
    axes = figure.subplots(rows, 1 + layers, squeeze=False)
    for row in range(rows):
        image = pixel_values[row].mean(0).cpu().numpy()
        axes[row, 0].imshow(image, cmap="gray")
        axes[row, 0].set_title(titles[row], fontsize=9)
        for layer in range(layers):
            axes[row, 1 + layer].imshow(maps[layer, row], cmap="magma", vmin=0.0)
            axes[row, 1 + layer].set_title(f"layer {layer + 1}" if row == 0 else "", fontsize=9)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(path, dpi=150)


def draw_alignment(
    model: PreTrainedModel, batch: Mapping[str, Tensor], words: Callable[[Tensor], list[str]], path: Path
) -> None:
    """Plot the cross-attention of each target of a batch, the mean over heads of the layer with the sharpest attention.

    `words` names tokens.
    """
    with torch.no_grad():
        attentions = model(**batch, output_attentions=True).cross_attentions
    maps = torch.stack([weights.mean(1) for weights in attentions]).cpu()
    sharpest = maps[int(maps.amax(-1).mean((1, 2)).argmax())]
    figure = Figure(figsize=(4.2 * len(sharpest), 4), layout="constrained")
    for row, axis in enumerate(figure.subplots(1, len(sharpest), squeeze=False)[0]):
        targets = words(batch["labels"][row][batch["labels"][row] != IGNORED])
        source = words(batch["input_ids"][row][batch["attention_mask"][row] == 1]) if "input_ids" in batch else []
        width = len(source) or sharpest.shape[-1]
        axis.imshow(sharpest[row, : len(targets), :width], cmap="magma", vmin=0.0, aspect="auto")
        axis.set_yticks(range(len(targets)), targets, fontsize=8)
        axis.set_xticks(range(len(source)), source, fontsize=8, rotation=90)
        axis.set_xlabel("" if source else "time, in frames after convolution")
    figure.suptitle("Cross-attention, mean over heads", fontsize=10)
    figure.savefig(path, dpi=150)
