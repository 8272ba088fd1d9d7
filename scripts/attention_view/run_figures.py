"""Draw the attention of a trained model in examples of its task: the figure of its card."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from qkv.scripts.attention.layers import Layers
from qkv.scripts.attention_view.figures import INCHES, draw_stack
from qkv.scripts.attention_view.inputs import with_target
from qkv.scripts.attention_view.positions import HOP
from qkv.scripts.attention_view.reading import Reading, capture
from qkv.scripts.attention_view.view import parts_of
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.tasks.task import Task

SCANNED, SHOWN = 200, 3  # examples of a split among which different ones are looked for, and those that are drawn
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
    for axis, (title, batch) in zip(figure.subplots(1, len(examples), squeeze=False)[0], examples.items(), strict=True):
        draw_stack(axis, capture(reading_of(model, task, batch), layers)[-1], title)
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
        if len(examples) < SHOWN:
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
