"""Draw what a trained model attends to in examples of its task: the figure of its card and of the gallery."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from qkv.scripts.attention_view.figures import (
    INCHES,
    OPACITY,
    draw_bars,
    draw_image,
    draw_map,
    draw_matrix,
    draw_scale,
    draw_spectrogram,
    frame,
    picture_grid,
    write_title,
)
from qkv.scripts.attention_view.inputs import with_target
from qkv.scripts.attention_view.media import HOP
from qkv.scripts.attention_view.reading import Reading, capture
from qkv.scripts.attention_view.stacks import Stack, Weights
from qkv.scripts.attention_view.view import parts_of
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.tasks.object_detection import MIN_SCORE
from qkv.scripts.tasks.task import Task

SCANNED = 200  # examples of a split among which different ones are looked for
DPI = 110
QUERIES = 3  # object queries that are drawn of an image, those of the highest scores
Drawing = tuple[Figure, str]  # and its caption


@dataclass(frozen=True)
class RunFigure:
    """The figure of a kind of task: its file, the number of its examples, their titles, and what draws their readings.

    Examples of one title are drawn once.
    """

    file: str
    count: int
    title: Callable[[Any, Batch], str]
    draw: Callable[[Sequence[Reading], Sequence[str]], Drawing]


def draw_run(model: Any, task: Task, folder: Path) -> dict[str, str]:
    """Draw what a model attends to in different examples of the test split, and return {file: caption}.

    Nothing is drawn for a task that has no figure, and for a model without cross-attention to what it transcribes.
    """
    figure = FIGURES.get(task.kind)
    if figure is None or (figure.draw is draw_alignment and not attends_to_source(model)):
        return {}
    examples = different_examples(task, figure)
    readings = [reading_of(model, task, batch) for batch in examples.values()]
    drawn, caption = figure.draw(readings, list(examples))
    drawn.savefig(folder / figure.file, dpi=DPI, pil_kwargs={"optimize": True})
    return {figure.file: caption}


def attends_to_source(model: Any) -> bool:
    """Tell whether a model is an encoder-decoder that generates and has cross-attention."""
    return hasattr(model, "prepare_decoder_input_ids_from_labels") and getattr(model.config, "attention", "") != "none"


def different_examples(task: Task, figure: RunFigure) -> dict[str, Batch]:
    """Return the first examples of the test split that have different titles, each as a batch."""
    split = task.splits.get("test") or next(iter(task.splits.values()))
    examples: dict[str, Batch] = {}
    for number in range(min(SCANNED, len(split))):
        batch = task.collate(split.__getitems__([number]), None)
        examples.setdefault(figure.title(task, batch), batch)
        if len(examples) == figure.count:
            break
    return examples


def reading_of(model: Any, task: Any, batch: Batch) -> Reading:
    """Return what a model reads of a batch of one example; a decoder reads and writes the labels."""
    inputs = {name: value.to(model.device) for name, value in model_inputs(batch).items() if name != "labels"}
    reading = Reading(model, inputs, **parts_of(getattr(task.processor, "parts", [task.processor])[-1]))
    if "input_features" in inputs:
        reading.seconds = inputs["input_features"].shape[1] * HOP / task.extractor.sampling_rate
    if attends_to_source(model):
        labels = batch["labels"].to(model.device)
        with_target(reading, torch.cat((model.prepare_decoder_input_ids_from_labels(labels), labels[:, -1:]), dim=1))
    return reading


def draw_attention(readings: Sequence[Reading], titles: Sequence[str]) -> Drawing:
    """Draw the attention of the class token over the patches of images, a column for each layer.

    Of a dual encoder also that of the last token of the image's caption over its tokens.
    """
    captured = [capture(reading) for reading in readings]
    images, texts = [image_stack(stacks) for stacks in captured], [text_stack(stacks) for stacks in captured]
    figure, axes = picture_grid(len(readings), 1 + len(images[0].layers), [1.2] if texts[0] else [])
    for row, image, text, title in zip(axes, images, texts, titles, strict=True):
        draw_image(row[0], image.keys)
        write_title(row[0], title)
        for axis, weights in zip(row[1:], pooled_rows(image), strict=False):
            draw_map(axis, weights, image.keys)
        if text:
            draw_bars(row[-1], text.weights[-1].mean(0)[-1], text.keys)
    query = "class token" if images[0].keys.prefix else "mean of all patches"
    heads = [f"{query},\nlayer {number + 1}" for number in images[0].layers]
    heads += [f"last token,\nlayer {texts[0].layers[-1] + 1}"] if texts[0] else []
    for axis, head in zip(axes[0, 1:], heads, strict=True):
        axis.set_title(head, fontsize=9)
    what = "the patches of an image" + (" and the tokens of its caption" if texts[0] else "")
    figure.suptitle(f"Attention over {what}, mean over heads", fontsize=10)
    draw_scale(figure, axes, OPACITY)
    beside = ", and of the last token of its caption, whose output stands for all, over the tokens" if texts[0] else ""
    return figure, f"Attention of the {query} over the patches of an image, by layer{beside}, mean over heads"


def image_stack(stacks: Sequence[Stack]) -> Stack:
    """Return the stack of an image's patches."""
    return next(stack for stack in stacks if stack.keys.picture is not None)


def text_stack(stacks: Sequence[Stack]) -> Stack | None:
    """Return the stack of a text's tokens, if there is one."""
    return next((stack for stack in stacks if stack.keys.kind == "tokens"), None)


def pooled_rows(image: Stack) -> Weights:
    """Return the weights (L, S) of the class token, or where there is none the mean of all patches."""
    weights = image.weights.mean(1)
    return weights[:, 0] if image.keys.prefix else weights.mean(1)


def draw_queries(readings: Sequence[Reading], titles: Sequence[str]) -> Drawing:
    """Draw the cross-attention of the object queries of the highest scores over images, with the boxes they predict."""
    figure, axes = picture_grid(len(readings), 1 + QUERIES)
    for row, reading, title in zip(axes, readings, titles, strict=True):
        cross = capture(reading, {"cross": -1})[-1]
        scores = reading.outputs.logits[0].softmax(-1)[:, :-1].amax(-1).sort(descending=True).values.tolist()
        draw_image(row[0], cross.keys)
        write_title(row[0], title)
        for number, axis in enumerate(row[1 : 1 + len(scores)]):
            draw_map(axis, cross.weights[-1].mean(0)[number], cross.keys)
            boxes = (cross.queries.boxes or []) if scores[number] >= MIN_SCORE else []
            label, colour = (cross.queries.labels[number], f"C{number}") if boxes else ("no object", "gray")
            write_title(axis, label, colour=colour)
            for each in (row[0], axis) if boxes else ():
                frame(each, boxes[number], colour)
    figure.suptitle(
        "Cross-attention of object queries to an image (left: its objects, and the boxes found),\n"
        "last decoder layer, mean over heads",
        fontsize=10,
    )
    draw_scale(figure, axes, OPACITY)
    return figure, (
        f"Cross-attention of the {QUERIES} object queries with the highest scores to an image, with the class and box "
        "that each predicts, last decoder layer, mean over heads"
    )


def draw_alignment(readings: Sequence[Reading], titles: Sequence[str]) -> Drawing:
    """Draw the cross-attention of written tokens to their source, under the spectrogram where that is a recording.

    The layer is that with the sharpest attention.
    """
    captured = [capture(reading, {"cross": None})[-1] for reading in readings]
    layer = int(np.mean([stack.weights.mean(1).max(-1).mean(-1) for stack in captured], axis=0).argmax())
    sound = captured[0].keys.kind == "frames"
    heights = (1, 3) if sound else (1,)
    figure = Figure(figsize=(INCHES * len(captured), sum(heights) + 1.6 if sound else INCHES), layout="constrained")
    axes = figure.subplots(len(heights), len(captured), squeeze=False, height_ratios=heights, sharex="col")
    for column, stack, title in zip(axes.T, captured, titles, strict=True):
        if sound:
            draw_spectrogram(column[0], stack.keys)
        draw_matrix(column[-1], stack.weights[layer].mean(0), stack.queries, stack.keys)
        column[-1].set_xlabel("time" if sound else "source", fontsize=8)
        write_title(column[0], title, INCHES)
    axes[-1, 0].set_ylabel("written", fontsize=8)
    what = "frames of the recording" if sound else "tokens of the source"
    which = f"decoder layer {layer + 1}, mean over heads"
    figure.suptitle(f"Cross-attention of each written token to the {what}, {which}", fontsize=10)
    draw_scale(figure, axes)
    above = ", under its spectrogram" if sound else ""
    return figure, f"Cross-attention of each written token (row) to the {what} (columns{above}), {which}"


def class_of(task: Any, batch: Batch) -> str:
    """Return the class of an image."""
    return str(task.labels[int(batch["labels"][0])])


def caption_of(task: Any, batch: Batch) -> str:
    """Return the caption of an image."""
    return str(task.captions[int(batch["_caption"][0])])


def classes_of(task: Any, batch: Batch) -> str:
    """Return the classes of the objects in an image."""
    objects: Any = batch["labels"][0]
    return ", ".join(task.labels[number] for number in sorted(objects["class_labels"].tolist()))


def target_of(task: Any, batch: Batch) -> str:
    """Return the text that is to be written."""
    return str(task.references[int(batch["_target"][0])])


FIGURES = {
    "image-classification": RunFigure("attention.png", 6, class_of, draw_attention),
    "zero-shot-image-classification": RunFigure("attention.png", 3, caption_of, draw_attention),
    "object-detection": RunFigure("queries.png", 3, classes_of, draw_queries),
    "translation": RunFigure("alignment.png", 3, target_of, draw_alignment),
    "automatic-speech-recognition": RunFigure("alignment.png", 2, target_of, draw_alignment),
}
