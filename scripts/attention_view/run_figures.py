"""Draw what a trained model attends to in examples of its task: the figure of its card and of the gallery."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from qkv.scripts.attention_view.figures import (
    COLOURS,
    INCHES,
    OPACITY,
    draw_image,
    draw_map,
    draw_matrix,
    escaped,
    frame,
)
from qkv.scripts.attention_view.inputs import with_target
from qkv.scripts.attention_view.positions import HOP, Positions, shortened
from qkv.scripts.attention_view.reading import Reading, capture
from qkv.scripts.attention_view.stacks import Weights
from qkv.scripts.attention_view.view import parts_of
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.tasks.object_detection import MIN_SCORE
from qkv.scripts.tasks.task import Task

SCANNED = 200  # examples of a split among which different ones are looked for
SIDE, DPI = 1.5, 110  # inches of a picture
QUERIES = 3  # object queries that are drawn of an image, those of the highest scores
# The file of the figure and the number of its examples, by kind of task.
FIGURES = {
    "image-classification": ("attention.png", 6),
    "zero-shot-image-classification": ("attention.png", 3),
    "object-detection": ("queries.png", 3),
    "translation": ("alignment.png", 3),
    "automatic-speech-recognition": ("alignment.png", 2),
}


class Map(NamedTuple):
    """A map of weights (S) over a picture, with the box of what was found there."""

    title: str
    weights: Weights
    box: list[float] | None = None


def draw_run(model: Any, task: Task, folder: Path) -> dict[str, str]:
    """Draw the attention of a model in different examples of the test split, and return {file: caption}.

    Nothing is drawn for a task without a figure, and for a model without cross-attention to its source.
    """
    file, count = FIGURES.get(task.kind, ("", 0))
    if not file or (file == "alignment.png" and not attends_to_source(model)):
        return {}
    examples = different_examples(task, count)
    readings = [reading_of(model, task, batch) for batch in examples.values()]
    draw = {"queries.png": draw_queries, "alignment.png": draw_alignment}.get(file, draw_patches)
    figure, caption = draw(readings, list(examples))
    figure.savefig(folder / file, dpi=DPI, pil_kwargs={"optimize": True})
    return {file: caption}


def attends_to_source(model: Any) -> bool:
    """Tell whether a model is an encoder-decoder that generates and has cross-attention."""
    return hasattr(model, "prepare_decoder_input_ids_from_labels") and getattr(model.config, "attention", "") != "none"


def different_examples(task: Any, count: int) -> dict[str, Batch]:
    """Return the first examples of the test split that have different titles, each as a batch."""
    split = task.splits.get("test") or next(iter(task.splits.values()))
    examples: dict[str, Batch] = {}
    for number in range(min(SCANNED, len(split))):
        batch = task.collate(split.__getitems__([number]), None)
        if len(examples) < count:
            examples.setdefault(title_of(task, batch), batch)
    return examples


def title_of(task: Any, batch: Batch) -> str:
    """Return the class, the caption, the classes of objects or the text of an example."""
    if task.kind == "object-detection":
        objects: Any = batch["labels"][0]
        return ", ".join(task.labels[number] for number in sorted(objects["class_labels"].tolist()))
    if task.kind == "image-classification":
        return str(task.labels[int(batch["labels"][0])])
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


def draw_patches(readings: Sequence[Reading], titles: Sequence[str]) -> tuple[Figure, str]:
    """Draw the attention of the class token over the patches of images, a map for each layer."""
    stacks = [next(each for each in capture(reading) if each.keys.picture is not None) for reading in readings]
    query, rows = "class token" if stacks[0].keys.prefix else "mean of all patches", []
    for stack in stacks:
        weights = stack.weights.mean(1)
        own = weights[:, 0] if stack.keys.prefix else weights.mean(1)
        rows.append([Map(f"layer {number + 1}", each) for number, each in zip(stack.layers, own, strict=True)])
    caption = f"Attention of the {query} over the patches of an image, by layer, mean over heads"
    return draw_maps([stack.keys for stack in stacks], titles, rows, caption), caption


def draw_queries(readings: Sequence[Reading], titles: Sequence[str]) -> tuple[Figure, str]:
    """Draw the cross-attention of the object queries of the highest scores over images, with the boxes they predict."""
    stacks, rows = [capture(reading, {"cross": -1})[-1] for reading in readings], []
    for reading, stack in zip(readings, stacks, strict=True):
        scores = reading.outputs.logits[0].softmax(-1)[:, :-1].amax(-1).sort(descending=True).values.tolist()
        queries, boxes = stack.queries, stack.queries.boxes or []
        found = zip(scores[:QUERIES], stack.weights[-1].mean(0), queries.labels, boxes, strict=False)
        rows.append([
            Map(label, weights, box) if score >= MIN_SCORE else Map("no object", weights)
            for score, weights, label, box in found
        ])  # fmt: skip
    title = "Cross-attention of object queries to an image, with the boxes found,\nlast decoder layer, mean over heads"
    caption = (
        f"Cross-attention of the {QUERIES} object queries with the highest scores to an image, with the class and box "
        "that each predicts, last decoder layer, mean over heads"
    )
    return draw_maps([stack.keys for stack in stacks], titles, rows, title), caption


def draw_maps(pictures: Sequence[Positions], titles: Sequence[str], rows: Sequence[list[Map]], title: str) -> Figure:
    """Draw a row for each picture: the picture and its maps, with the boxes of what was found in both."""
    columns = 1 + max(map(len, rows))
    figure = Figure(figsize=(SIDE * columns + 0.8, (SIDE + 0.25) * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, picture, name, maps in zip(axes, pictures, titles, rows, strict=True):
        draw_image(row[0], picture)
        write_title(row[0], name)
        for number, (axis, each) in enumerate(zip(row[1:], maps, strict=False)):
            draw_map(axis, each.weights, picture)
            write_title(axis, each.title, colour="black" if each.box is None else f"C{number}")
            for shown in (row[0], axis) if each.box is not None else ():
                frame(shown, each.box, f"C{number}")
    figure.suptitle(title, fontsize=10)
    draw_scale(figure, axes, OPACITY)
    return figure


def draw_alignment(readings: Sequence[Reading], titles: Sequence[str]) -> tuple[Figure, str]:
    """Draw the cross-attention of written tokens to their source, under the spectrogram of a recording.

    The layer is that with the sharpest attention.
    """
    captured = [capture(reading, {"cross": None})[-1] for reading in readings]
    layer = int(np.mean([stack.weights.mean(1).max(-1).mean(-1) for stack in captured], axis=0).argmax())
    is_sound = captured[0].keys.kind == "frames"
    heights = (1, 3) if is_sound else (1,)
    figure = Figure(figsize=(INCHES * len(captured), sum(heights) + 1.6 if is_sound else INCHES), layout="constrained")
    axes = figure.subplots(len(heights), len(captured), squeeze=False, height_ratios=heights, sharex="col")
    for column, stack, name in zip(axes.T, captured, titles, strict=True):
        if is_sound:
            draw_image(column[0], stack.keys, (-0.5, len(stack.keys) - 0.5, 0, 1))
        draw_matrix(column[-1], stack.weights[layer].mean(0), stack.queries, stack.keys)
        column[-1].set_xlabel("time" if is_sound else "source", fontsize=8)
        write_title(column[0], name, INCHES)
    axes[-1, 0].set_ylabel("written", fontsize=8)
    source = "frames of the recording" if is_sound else "tokens of the source"
    which = f"decoder layer {layer + 1}, mean over heads"
    figure.suptitle(f"Cross-attention of each written token to the {source}, {which}", fontsize=10)
    draw_scale(figure, axes)
    above = ", under its spectrogram" if is_sound else ""
    return figure, f"Cross-attention of each written token (row) to the {source} (columns{above}), {which}"


def draw_scale(figure: Figure, axes: Any, opacity: float = 1.0) -> None:
    """Draw the scale of maps that each span 0 to their largest weight."""
    bar = figure.colorbar(ScalarMappable(cmap=COLOURS), ax=axes, ticks=(0, 1), shrink=0.6, alpha=opacity)
    bar.ax.set_facecolor("gray")
    bar.ax.set_yticklabels(["0", "largest\nof a map"], fontsize=8)
    bar.set_label("attention weight", fontsize=8)


def write_title(axis: Any, text: str, width: float = SIDE, colour: str = "black") -> None:
    """Write a text above axes of a width in inches, as much of it as there is room for."""
    axis.set_title(escaped(shortened(text, int(12 * width))), fontsize=9, color=colour)
