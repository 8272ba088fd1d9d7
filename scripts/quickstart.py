"""Take a recipe the whole way: train, compare, draw, write the card, build the Hub folder, load it without qkv."""

import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import torch
from PIL import Image
from torch import Tensor

from qkv.scripts.publishing.card import auto_class, companions, make_card
from qkv.scripts.publishing.export import build_folder
from qkv.scripts.publishing.reload import Found, Job, outputs, reload
from qkv.scripts.train import add_arguments as add_arguments
from qkv.scripts.training.digits import support_vectors
from qkv.scripts.training.picture import draw_attention
from qkv.scripts.training.recipe import load
from qkv.scripts.training.report import files, measures, show
from qkv.scripts.training.run import Run, train
from qkv.scripts.training.task import Batch, Task

EXAMPLE = "qkv quickstart digits out=runs/first"
ATTENTION = {"attention.png": "What the class token attends to in images of some labels, by layer, mean over heads"}
# Images on the attention picture, one for each of the first labels.
DRAWN = 6


def run(arguments: Namespace) -> None:
    """Do it all and print one table; RuntimeError when the folder does not load to the same model."""
    finished = train(load(arguments.recipe, arguments.overrides), arguments.words)
    if not finished.is_main:
        return
    machine = support_vectors(finished.task)
    finished.record["baselines"] = {"SVM (scikit-learn)": {split: {"accuracy": machine[split]} for split in machine}}
    draw(finished)
    finished.save()
    publish(finished)
    finished.record["reload"] = {split: compare(finished, split) for split in finished.task.splits}
    finished.save()
    show(finished.record["recipe"]["name"], {**measures(finished.record), **files(finished.folder)})


def draw(finished: Run) -> None:
    """Draw what the class token reads in one image of each label."""
    examples = whole(finished.task, next(iter(finished.task.splits)))
    labels, names = examples["labels"].tolist(), finished.task.labels
    chosen = [labels.index(label) for label in range(min(DRAWN, len(names)))]
    images = examples["pixel_values"][chosen].to(finished.model.device)
    draw_attention(finished.model, images, names, finished.folder / "attention.png")
    finished.record["pictures"] |= ATTENTION


def publish(finished: Run) -> None:
    """Build the Hub folder, with the card as its README and the pictures on it."""
    build_folder(
        finished.model,
        finished.folder / "hub",
        processors=[finished.task.processor],
        card=lambda identity: str(make_card(finished.record, digest=identity)),
        files=companions(finished.record, finished.folder),
    )


def whole(task: Task, split: str) -> Batch:
    """All examples of a split."""
    examples = task.splits[split]
    return task.collate(examples.__getitems__(range(len(examples))), None)


def compare(finished: Run, split: str) -> dict[str, float]:
    """Metrics of the Hub folder on a split, loaded without qkv; RuntimeError unless it is the same model."""
    columns, hub = whole(finished.task, split), finished.folder / "hub"
    inputs = {"pixel_values": columns["pixel_values"]}
    with tempfile.TemporaryDirectory() as place:
        example = Path(place) / "example.png"
        to_image(columns["pixel_values"][0]).save(example)
        (found,) = reload([Job(hub, auto_class(finished.record), inputs, pipeline=finished.task.kind, example=example)])
    refuse_difference(found, outputs(finished.model, inputs)["logits"], finished.task.labels)
    sums = finished.task.score(SimpleNamespace(**found.outputs), columns)
    return {name: value.item() / finished.task.count(columns) for name, value in sums.items()}


def to_image(pixels: Tensor) -> Image.Image:
    """The picture whose processed pixels (3, height, width) in [-1, 1] these are."""
    levels = ((pixels + 1) * 127.5).round().to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def refuse_difference(found: Found, expected: Tensor, labels: list[str]) -> None:
    """Raise RuntimeError unless logits are the same bit by bit, and the pipeline sees in a file what the model sees."""
    logits = found.outputs["logits"]
    if not torch.equal(logits, expected):
        difference = (logits - expected).abs().max().item()
        raise RuntimeError(f"the Hub folder loads to a model with other logits, by up to {difference}")
    label = labels[int(expected[0].argmax())]
    if found.answer[0]["label"] != label:
        raise RuntimeError(f"the pipeline calls the first image {found.answer[0]['label']!r}, the model {label!r}")


if __name__ == "__main__":
    from qkv.scripts.cli import main

    sys.exit(main(["quickstart", *sys.argv[1:]]))
