"""Classification of images, cropped at random in training where they have no other augmentation."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.image import augment
from qkv.scripts.data.image_data import ImageData
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.schema import Augmentation, Recipe
from qkv.scripts.tasks.task import Answer, Task

# Of a crop: the least share of the image, and its largest aspect ratio. Szegedy et al. 2015, §6.
MIN_AREA, MAX_RATIO = 0.08, 4 / 3
CENTER = 224 / 256  # the share of the shorter side that is seen in evaluation


class ImageClassification(Task):
    """Classify images; training crops a random part by the place of an example, or changes images by `augment`."""

    kind = "image-classification"
    has_references = True

    def __init__(self, recipe: Recipe, data: ImageData) -> None:
        self.images, self.recipe = data, recipe
        metrics = ("f1_macro",) if data.report else ()  # classes of own data may be unbalanced
        super().__init__(data, {"train": data.train, **data.splits}, data.processor, data.config, data.labels, metrics)

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        if self.images.collate:
            return self.images.collate(records, places)
        images = [check_image(record["image"]) for record in records]
        labels = torch.tensor([record["label"] for record in records])
        if self.recipe.data.augment != Augmentation():
            pixels = self.processor(images, return_tensors="pt")["pixel_values"]
            return {"pixel_values": augment(pixels, places, self.recipe), "labels": labels}
        if places is None:
            squares = [center_crop(image) for image in images]
        else:
            draws = [np.random.default_rng((self.recipe.seed, place)).random(5) for place in places]
            squares = [random_crop(image, draw) for image, draw in zip(images, draws, strict=True)]
        return {"pixel_values": self.processor(squares, return_tensors="pt")["pixel_values"], "labels": labels}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the predicted class of each image, and its label."""
        return list(zip(outputs.logits.argmax(-1).tolist(), batch["labels"].tolist(), strict=True))

    def score(self, outputs: Any, batch: Batch) -> dict[str, torch.Tensor]:
        return {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()}


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
