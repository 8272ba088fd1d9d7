"""Draw the attention of a trained model in examples of its task: the figure of its card.

Shapes: T queries, S keys.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps, image
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from qkv.scripts.attention.layers import Layers
from qkv.scripts.attention.statistics import COLOURS
from qkv.scripts.attention_view.inputs import with_target
from qkv.scripts.attention_view.positions import HOP, Positions, shortened
from qkv.scripts.attention_view.reading import Reading, capture
from qkv.scripts.attention_view.stacks import Stack, Weights, colour_scale
from qkv.scripts.attention_view.view import parts_of
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.tasks.task import Task

INCHES, NAMED, TIMES = 4.6, 40, 8  # width of a panel, and labels of an axis, and of one of times
MATRIX = colormaps[COLOURS].with_extremes(bad="#c8ccd0")  # grey where a key is masked
OVERLAY = LinearSegmentedColormap.from_list("overlay", [(1, 0.5, 0, 0), (0.9, 0.25, 0, 0.85)])  # above a grey picture
SCANNED, SHOWN = 200, 3  # examples of a split that are searched for different titles, and examples that are drawn
# The file of the figure, the stack that is drawn, and its caption, by kind of task.
FIGURES: dict[str, tuple[str, Layers, str]] = {
    "image-classification": ("attention.png", None, "a query, named above, to the patches of an image"),
    "zero-shot-image-classification": ("attention.png", {"image": -1}, "the class token to the patches of an image"),
    "object-detection": ("queries.png", {"cross": -1}, "the object query with the highest score, with its box"),
    "translation": ("alignment.png", {"cross": -1}, "each written token (row) to the source (columns)"),
    "automatic-speech-recognition": ("alignment.png", {"cross": -1}, "each written token (row) to frames (columns)"),
}


def draw_run(model: Any, task: Task, folder: Path) -> dict[str, str]:
    """Draw the attention of a model in different examples of the test split, and return {file: caption}.

    Nothing is drawn for a task without a figure, and for a model without cross-attention to its source.
    """
    file, layers, attending = FIGURES.get(task.kind, ("", None, ""))
    if not file or (file == "alignment.png" and not attends_to_source(model)):
        return {}
    examples = different_examples(task)
    figure = Figure(figsize=(INCHES * len(examples), INCHES), layout="constrained")
    axes = figure.subplots(1, len(examples), squeeze=False)[0]
    readings = [reading_of(model, task, batch) for batch in examples.values()]
    stacks = [capture(reading, layers)[-1] for reading in readings]
    scale = colour_scale(*(drawn_weights(stack)[0] for stack in stacks))
    for axis, batch, reading, stack in zip(axes, examples.values(), readings, stacks, strict=True):
        draw_stack(axis, stack, title_of(task, batch, getattr(reading.outputs, "logits", None)), scale)
    colours = OVERLAY if drawn_weights(stacks[0])[1] else MATRIX
    figure.colorbar(ScalarMappable(Normalize(0, scale), colours), ax=axes, label="attention weight")
    figure.suptitle(f"Layer {stacks[0].layers[-1]} (the last; the first is layer 0), mean over heads", fontsize=10)
    figure.savefig(folder / file, dpi=110, pil_kwargs={"optimize": True})
    return {file: f"Attention of {attending}, last layer, mean over heads"}


def attends_to_source(model: Any) -> bool:
    """Tell whether a model is an encoder-decoder that generates and has cross-attention."""
    return hasattr(model, "prepare_decoder_input_ids_from_labels") and getattr(model.config, "attention", "") != "none"


def different_examples(task: Any) -> dict[str, Batch]:
    """Return the first examples of the test split that have different titles, each as a batch."""
    split = task.splits.get("test") or next(iter(task.splits.values()))
    examples: dict[str, Batch] = {}
    for number in range(min(SCANNED, len(split))):
        batch = task.collate(split.__getitems__([number]), None)
        examples.setdefault(title_of(task, batch), batch)
        if len(examples) == SHOWN:
            break
    return examples


def title_of(task: Any, batch: Batch, logits: Any = None) -> str:
    """Return the class, with logits also the predicted one, the caption, the classes of objects or the text."""
    if task.kind == "object-detection":
        objects: Any = batch["labels"][0]
        return ", ".join(task.labels[number] for number in sorted(objects["class_labels"].tolist()))
    if task.kind == "image-classification":
        true = str(task.labels[int(batch["labels"][0])])
        return true if logits is None else f"true class {true}, predicted {task.labels[int(logits[0].argmax())]}"
    if task.kind == "zero-shot-image-classification":
        return str(task.captions[int(batch["_caption"][0])])
    return str(task.references[int(batch["_target"][0])])


def reading_of(model: Any, task: Any, batch: Batch) -> Reading:
    """Read a batch of one example; a decoder reads and writes the labels."""
    inputs = {name: value.to(model.device) for name, value in model_inputs(batch).items() if name != "labels"}
    reading = Reading(model, inputs, **parts_of(getattr(task.processor, "parts", [task.processor])[-1]))
    if "input_features" in inputs:
        reading.seconds = inputs["input_features"].shape[1] * HOP / task.extractor.sampling_rate
    if attends_to_source(model):
        labels = batch["labels"].to(model.device)
        with_target(reading, torch.cat((model.prepare_decoder_input_ids_from_labels(labels), labels[:, -1:]), dim=1))
    return reading


def drawn_weights(stack: Stack) -> tuple[Weights, str]:
    """Return the last layer's weights, mean over heads, all (T, S), or over a picture those of one query (S,), named.

    That query is the class token, the object of the highest score with its box, or else the mean of all patches.
    """
    weights: Weights = stack.weights[-1].mean(0)
    if stack.keys.grid is None or stack.keys.picture is None:
        return weights, ""
    if stack.queries.kind == "patches" and not stack.queries.prefix:
        return weights.mean(0), "\nmean of all queries"
    return weights[0], f"\nquery: {stack.queries.labels[0]}"


def draw_stack(axis: Any, stack: Stack, title: str, scale: float = 1.0) -> None:
    """Draw the last layer, mean over heads, in colours from 0 to `scale`: a matrix, or a picture under a query."""
    weights, query = drawn_weights(stack)
    if not query:
        draw_matrix(axis, weights, stack.queries, stack.keys, scale)
    else:
        draw_map(axis, weights, stack.keys, scale)
        for left, top, width, height in (stack.queries.boxes or [])[:1]:
            axis.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="white", linewidth=2))
    axis.set_title(shortened(title) + query, fontsize=9, wrap=True, parse_math=False)


def draw_matrix(axis: Any, weights: Weights, queries: Positions, keys: Positions, scale: float) -> None:
    """Draw weights (T, S) with the names of queries and keys."""
    shown: Any = np.ma.masked_equal(weights, 0)
    axis.imshow(shown, cmap=MATRIX, vmin=0.0, vmax=scale, aspect="auto", interpolation="nearest")
    for side, positions in ((axis.yaxis, queries), (axis.xaxis, keys)):
        most = TIMES if positions.kind == "frames" else NAMED
        places = list(range(0, len(positions), max(1, -(-len(positions) // most))))
        space = "\N{OPEN BOX}" if positions.kind == "tokens" else " "
        labels = [positions.labels[place].replace(" ", space) for place in places]
        is_upright = side is axis.xaxis and positions.kind != "frames"
        side.set_ticks(places, labels, fontsize=7, rotation=90 if is_upright else 0, parse_math=False)


def draw_map(axis: Any, row: Weights, keys: Positions, scale: float) -> None:
    """Draw the picture of the keys in grey under the weights (S) of one query."""
    rows, columns = keys.grid or (1, 1)
    pixels = image.imread(io.BytesIO(keys.picture or b""), format="png")
    grey = pixels[..., :3].mean(-1) if pixels.ndim == 3 else pixels
    whole: Any = {"extent": (0, 1, 1, 0), "interpolation": "nearest"}
    axis.imshow(grey, cmap="gray", vmin=-0.45, vmax=1.2, **whole)
    weights = row[keys.prefix : keys.prefix + rows * columns].reshape(rows, columns)
    axis.imshow(weights, cmap=OVERLAY, vmin=0.0, vmax=scale, **whole)
    axis.set_aspect(grey.shape[0] / grey.shape[1])
    axis.set_axis_off()
