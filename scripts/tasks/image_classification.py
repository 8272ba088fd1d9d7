"""Classification of images, cropped at random in training where they have no other augmentation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.image_data import ImageData
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Example, Task

# Of a crop: the least share of the image, and its largest aspect ratio. Szegedy et al. 2015, §6.
MIN_AREA, MAX_RATIO = 0.08, 4 / 3
CENTER = 224 / 256  # the share of the shorter side that is seen in evaluation


def image_classification(recipe: Recipe, data: ImageData) -> Task:
    """Make the task of classifying images."""

    def example(model: Any) -> Example | None:
        if data.sample is None:
            return None
        inputs = data.processor(data.sample, return_tensors="pt").to(model.device)
        with torch.no_grad():
            label = int(model(**inputs).logits.argmax())
        return Example(data.sample, {"label": data.labels[label]})

    return Task(
        data=data,
        kind="image-classification",
        train=data.train,
        splits=data.splits,
        processor=data.processor,
        labels=data.labels,
        score=lambda outputs, batch: {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()},
        collate=data.collate or RandomCrop(data.processor, recipe.seed),
        config=data.config,
        baselines=data.baselines,
        example=example,
    )


@dataclass(frozen=True)
class RandomCrop:
    """Makes batches of square images: in training of a crop that follows from an image's place, else of its center."""

    processor: Any
    seed: int

    def __call__(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Return pixels and labels."""
        images = [check_image(record["image"]) for record in records]
        if places is None:
            squares = [center_crop(image) for image in images]
        else:
            draws = [np.random.default_rng((self.seed, place)).random(5) for place in places]
            squares = [random_crop(image, draw) for image, draw in zip(images, draws, strict=True)]
        labels = torch.tensor([record["label"] for record in records])
        return {"pixel_values": self.processor(squares, return_tensors="pt")["pixel_values"], "labels": labels}


def center_crop(image: Image.Image) -> Image.Image:
    """Crop the square in the middle."""
    width, height = image.size
    side = min(image.size) * CENTER
    left, top = (width - side) / 2, (height - side) / 2
    return image.crop((round(left), round(top), round(left + side), round(top + side)))


def random_crop(image: Image.Image, draws: np.ndarray) -> Image.Image:
    """Crop a part of the image, and mirror it half of the time, by five numbers in [0, 1)."""
    width, height = image.size
    area = width * height * (MIN_AREA + draws[0] * (1 - MIN_AREA))
    ratio = MAX_RATIO ** (2 * draws[1] - 1)
    wide, high = (
        min(max(round(math.sqrt(size)), 1), most) for size, most in ((area * ratio, width), (area / ratio, height))
    )
    left, top = int(draws[2] * (width - wide + 1)), int(draws[3] * (height - high + 1))
    part = image.crop((left, top, left + wide, top + high))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws[4] < 0.5 else part
