"""Draw attention of a trained model: of the class token in images, of written tokens to their source."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention_view.figures import draw_matrix, escaped
from qkv.scripts.attention_view.positions import Positions
from qkv.scripts.data.collate import IGNORED


@torch.no_grad()
def draw_attention(model: PreTrainedModel, pixel_values: Tensor, titles: list[str], path: Path) -> None:
    """Plot the class token's attention over the patches of images (B, C, height, width), a column per layer.

    Weights are averaged over heads, and the colours of each map span 0 to its maximum.
    """
    with capture_attention(model, {"pixel_values": pixel_values}, queries=0) as captured:
        weights = [record.weights.mean(1)[:, 0].float() for record in captured]
    prefix, grid = model.config.num_prefix_tokens, model.config.grid
    maps = torch.stack([each[:, prefix:].unflatten(-1, grid) for each in weights]).cpu().numpy()
    rows, layers = len(pixel_values), len(maps)
    figure = Figure(figsize=(1.3 * (1 + layers), 1.45 * rows), layout="constrained")
    figure.suptitle("Attention of the class token, mean over heads", fontsize=10)
    axes = figure.subplots(rows, 1 + layers, squeeze=False)
    for row in range(rows):
        axes[row, 0].imshow(pixel_values[row].mean(0).cpu().numpy(), cmap="gray")
        axes[row, 0].set_title(escaped(titles[row]), fontsize=9)
        for layer in range(layers):
            axes[row, 1 + layer].imshow(maps[layer, row], cmap="magma", vmin=0.0)
            axes[row, 1 + layer].set_title(f"layer {layer + 1}" if row == 0 else "", fontsize=9)
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(path, dpi=150)


@torch.no_grad()
def draw_alignment(
    model: PreTrainedModel, batch: Mapping[str, Tensor], words: Callable[[Tensor], list[str]], path: Path
) -> None:
    """Plot the cross-attention of each target of a batch, the mean over heads of the layer with the sharpest attention.

    `words` names tokens.
    """
    with capture_attention(model, batch, layers={"cross": None}) as captured:
        maps = torch.stack([record.weights.mean(1).float() for record in captured]).cpu()
    sharpest = maps[int(maps.amax(-1).mean((1, 2)).argmax())]
    figure = Figure(figsize=(4.2 * len(sharpest), 4), layout="constrained")
    for row, axis in enumerate(figure.subplots(1, len(sharpest), squeeze=False)[0]):
        targets = words(batch["labels"][row][batch["labels"][row] != IGNORED])
        source = words(batch["input_ids"][row][batch["attention_mask"][row] == 1]) if "input_ids" in batch else []
        own = sharpest[row, : len(targets), : len(source) or None].numpy()
        draw_matrix(axis, own, Positions("tokens", targets), Positions("tokens", source))
        axis.set_xlabel("" if source else "time, in frames after convolution")
    figure.suptitle("Cross-attention, mean over heads", fontsize=10)
    figure.savefig(path, dpi=150)
