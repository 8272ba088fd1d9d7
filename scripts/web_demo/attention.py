"""Attention of a model for an input of the page: one map of weights, with what its rows and columns stand for."""

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import one_hot

from qkv.scripts.attention.capture import capture_attention
from qkv.scripts.attention.layers import attention_layers
from qkv.scripts.prediction.source import Source
from qkv.scripts.web_demo.answers import read_request
from qkv.scripts.web_demo.forward_inputs import READERS, Inputs, Read
from qkv.scripts.web_demo.requests import RefusedError, index_of, shortened, text_of

MOST_SHOWN = 128  # rows and columns of a map; of an image every patch is shown, and a row for the first ones
# Stacks in the order in which they are offered. That of a model with no other is shown as `self`.
ORDER = ("cross", "decoder", "encoder", "self", "image", "text")


def stacks_of(model: Any) -> dict[str, tuple[str, int]]:
    """Return the stacks of a model by the names that are shown: their own names, and the numbers of their layers."""
    try:
        counts = Counter(layer.stack for layer in attention_layers(model) if layer.is_of_tokens)
    except ValueError:
        raise RefusedError(400, f"{type(model).__name__} has no attention that can be shown") from None
    alone = len(counts) == 1 and "cross" not in counts
    shown = {"self" if alone else name: (name, count) for name, count in counts.items()}
    return {name: shown[name] for name in sorted(shown, key=[*ORDER, *shown].index)}


@torch.no_grad()
def layer_weights(model: Any, inputs: Inputs, stack: str, layer: int) -> tuple[Any, Tensor]:
    """Return the outputs for one input, and the attention weights of one layer: (heads, T, S)."""
    with capture_attention(model, inputs, layers={stack: layer}) as captured:
        weights = captured[0].weights
    if len(weights) != 1:  # of windows each has its own
        raise RefusedError(400, f"{type(model).__name__} attends within windows of its input, which are not shown")
    return captured.outputs, weights[0].float()


def attention(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map for a request, whose stack, layer and head it may name, with what there is to choose from."""
    read = READERS[source.task](source, read_request(source, request), request)
    stacks = stacks_of(source.model)
    stack = text_of(request, "stack") or next(iter(stacks))
    if stack not in stacks:
        raise RefusedError(400, f"there is no stack {shortened(stack)!r}; the stacks are {', '.join(stacks)}")
    name, layers = stacks[stack]
    layer = index_of(request, "layer", layers)
    layer = layers - 1 if layer is None else layer
    outputs, weights = layer_weights(source.model, read.inputs, name, layer)
    head = index_of(request, "head", len(weights))
    own = weights.mean(0) if head is None else weights[head]
    names = {
        "stacks": list(stacks),
        "stack": stack,
        "layers": layers,
        "layer": layer,
        "heads": len(weights),
        "head": head,
    }
    return names | drawn(source, read, stack, outputs, own.cpu())


def drawn(source: Source, read: Read, stack: str, outputs: Any, weights: Tensor) -> dict[str, Any]:
    """Return the weights (T, S) of a map with the names of rows and columns, or over the picture that was read."""
    if read.pixels is not None and stack not in ("text", "decoder"):
        grid = grid_of(source.model.config, read.pixels, weights.shape[1])
        # Tokens of a detector beside its patches stand behind them.
        if grid and not (grid[2] and source.task == "object-detection"):
            return over_picture(source, read, stack, outputs, weights, grid)
    if read.seconds and stack != "decoder":
        return over_time(read, stack, weights)
    rows = read.names.get("decoder" if stack in ("cross", "decoder") else stack)
    columns = read.names.get("encoder" if stack == "cross" else stack)
    shown = weights[:MOST_SHOWN, :MOST_SHOWN]
    made = {
        "weights": rounded(shown),
        "rows": named(rows, weights.shape[0]),
        "columns": named(columns, weights.shape[1]),
    }
    if max(weights.shape) > MOST_SHOWN:
        made["note"] = f"the first {MOST_SHOWN} of {max(weights.shape)} positions"
    return made


def over_time(read: Read, stack: str, weights: Tensor) -> dict[str, Any]:
    """Return weights on moments of a recording; what falls into one is summed, and rows of one moment are averaged."""
    weights = weights @ one_hot(bins(weights.shape[1])).float()
    if stack == "cross":
        names = named(read.names.get("decoder"), len(weights))
        weights = weights[:MOST_SHOWN]
    else:
        rows = one_hot(bins(len(weights))).float()
        weights = (rows / rows.sum(0)).T @ weights
        names = [f"{(number + 0.5) * (read.seconds or 0) / len(weights):.2f} s" for number in range(len(weights))]
    moments = named(None, weights.shape[1])
    return {"weights": rounded(weights), "rows": names, "columns": moments, "seconds": read.seconds}


def bins(count: int) -> Tensor:
    """Return the bin of each position, of as many as are shown."""
    return torch.arange(count) * min(count, MOST_SHOWN) // count


def named(names: Sequence[str] | None, count: int) -> list[str]:
    """Return the names of the first positions: those that are known, and numbers for others."""
    known = list(names or ())[: min(count, MOST_SHOWN)]
    return known + [str(number + 1) for number in range(len(known), min(count, MOST_SHOWN))]


def rounded(weights: Tensor) -> list[list[float]]:
    """Return weights as JSON holds them, to five digits."""
    return [[round(value, 5) for value in row] for row in weights.tolist()]


def grid_of(config: Any, pixels: Tensor, count: int) -> tuple[int, int, int] | None:
    """Return the rows and columns of the patches or features of an image, and how many tokens stand before them.

    None where the model has none that cover the image evenly.
    """
    height, width = pixels.shape[-2:]
    size = getattr(getattr(config, "vision_config", config), "patch_size", None)
    sizes = [size] if isinstance(size, int) else [2**power for power in range(1, 8)]
    for side in sizes:
        for rounding in (math.ceil, math.floor):
            rows, columns = rounding(height / side), rounding(width / side)
            before = count - rows * columns
            if rows and columns and 0 <= before <= (5 if size else 0):  # a class token, and registers
                return rows, columns, before
    return None


def over_picture(
    source: Source, read: Read, stack: str, outputs: Any, weights: Tensor, grid: tuple[int, int, int]
) -> dict[str, Any]:
    """Return weights on patches for each query, with the picture as the model reads it."""
    rows, columns, before = grid
    names, queries = queries_of(source, read, stack, outputs, weights, before)
    return {
        "grid": [rows, columns],
        "picture": as_png(read.pixels),
        "rows": names,
        "weights": rounded(queries[:, before:]),
    }


def queries_of(
    source: Source, read: Read, stack: str, outputs: Any, weights: Tensor, before: int
) -> tuple[list[str], Tensor]:
    """Return the queries of a map over an image: objects that were detected, or the output's and then each patch's."""
    if stack == "cross" and source.task == "object-detection":
        probabilities = outputs.logits[0].softmax(-1)[:, :-1].max(-1)
        kept = [number for number, score in enumerate(probabilities.values.tolist()) if score > read.threshold]
        kept = kept or [int(probabilities.values.argmax())]
        labels = source.model.config.id2label
        names = [f"{labels[int(probabilities.indices[number])]} {probabilities.values[number]:.2f}" for number in kept]
        return names, weights[kept]
    first = ["class token"] if before else ["all patches"]
    patches = weights[before:][:MOST_SHOWN]
    summary = weights[:1] if before else weights.mean(0, keepdim=True)
    return first + [f"patch {number + 1}" for number in range(len(patches))], torch.cat([summary, patches])


def as_png(pixels: Tensor | None) -> str:
    """Return processed pixels (3, height, width) as the address of a PNG, from the darkest value to the brightest."""
    if pixels is None:
        return ""
    low, high = float(pixels.min()), float(pixels.max())
    levels = ((pixels - low) / max(high - low, 1e-6) * 255).round().to(torch.uint8)
    with io.BytesIO() as file:
        Image.fromarray(levels.permute(1, 2, 0).cpu().numpy()).save(file, "PNG")
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
