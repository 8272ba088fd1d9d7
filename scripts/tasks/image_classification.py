"""What is on the picture? Folders of images and data sets of the Hub, cropped at random in training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel
from PIL import Image
from transformers import ViTImageProcessorPil

from qkv.scripts.data.loading import called, read, splits
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.text_columns import address
from qkv.scripts.data.validation import Complaints, label, picture, sift
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Batch, Record, Task

COLUMNS = ("image", "label")
# Of a crop: the least share of the picture, and how far from a square it may be. Szegedy et al. 2015, §6.
LEAST_AREA, WIDEST = 0.08, 4 / 3
# Of the shorter side, what is seen in evaluation.
CENTRE = 224 / 256


def images(recipe: Recipe) -> Task:
    """Pictures and their classes; ValueError where the data name no classes, or there is nothing to evaluate on."""
    there = [name for name in ("validation", "test") if name in splits(recipe.data) and is_labelled(recipe, name)]
    if not there:
        raise ValueError(
            f"data={recipe.data!r} has no validation and no test split with labels; put images in folders of that name"
        )
    found: Any = read(recipe.data, streaming=recipe.streaming, columns=list(COLUMNS))
    kind = (found.features or {}).get("label")
    if not isinstance(kind, ClassLabel):
        raise ValueError(f"data={recipe.data!r} names no classes in its column 'label'; give a folder for each class")
    complaints, checks = Complaints(recipe.bad_records), {"image": picture, "label": label(kind.names)}
    tables: Any = {name: read(recipe.data, split=name, columns=list(COLUMNS)) for name in there}
    side = recipe.model.get("image_size", 224)
    processor = ViTImageProcessorPil(
        size={"height": side, "width": side}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True
    )
    return Task(
        name=called(recipe.data),
        title=called(recipe.data),
        kind="image-classification",
        source=address(recipe),
        train=Stream.of(recipe, complaints, checks) if recipe.streaming else sift(found, checks, complaints),
        splits={name: sift(table, checks, complaints) for name, table in tables.items()},
        complaints=complaints,
        labels=list(kind.names),
        processor=processor,
        count=lambda batch: int((batch["labels"] != -100).sum()),
        score=lambda outputs, batch: {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()},
        collate=Crop(processor, recipe.seed),
        config={"image_size": side},
    )


def is_labelled(recipe: Recipe, split: str) -> bool:
    """Whether the answers of a split are known: those of a competition's test are -1, as in ImageNet's."""
    records = read(recipe.data, split=split, streaming=True, columns=list(COLUMNS))
    return next((record["label"] != -1 for record in records), False)


@dataclass(frozen=True)
class Crop:
    """Makes batches of square pixels: in training of a part that a picture's place decides, else of its centre."""

    processor: Any
    seed: int

    def __call__(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Pixels and labels."""
        found = [picture(record["image"]) for record in records]
        if places is None:
            squares = [centre(image) for image in found]
        else:
            draws = [np.random.default_rng((self.seed, place)).random(5) for place in places]
            squares = [part(image, draw) for image, draw in zip(found, draws, strict=True)]
        labels = torch.tensor([record["label"] for record in records])
        return {"pixel_values": self.processor(squares, return_tensors="pt")["pixel_values"], "labels": labels}


def centre(image: Image.Image) -> Image.Image:
    """The square in the middle."""
    width, height = image.size
    side = min(image.size) * CENTRE
    left, top = (width - side) / 2, (height - side) / 2
    return image.crop((round(left), round(top), round(left + side), round(top + side)))


def part(image: Image.Image, draws: np.ndarray) -> Image.Image:
    """A part of the picture, and half of the time its mirror image, as five numbers in [0, 1) decide."""
    width, height = image.size
    area = width * height * (LEAST_AREA + draws[0] * (1 - LEAST_AREA))
    ratio = WIDEST ** (2 * draws[1] - 1)
    wide, high = (
        min(max(round(math.sqrt(size)), 1), most) for size, most in ((area * ratio, width), (area / ratio, height))
    )
    left, top = int(draws[2] * (width - wide + 1)), int(draws[3] * (height - high + 1))
    found = image.crop((left, top, left + wide, top + high))
    return found.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws[4] < 0.5 else found
