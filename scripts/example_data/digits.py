"""What are the digits? scikit-learn's images, their changes in training, and what a support vector machine answers."""

import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from torch import Tensor
from torch.nn import functional as F
from transformers import ViTImageProcessorPil

from qkv.scripts.recipes.schema import Augmentation, Recipe
from qkv.scripts.tasks.task import Batch, Columns, Example, Examples, Record, Task, stack


def digits(recipe: Recipe) -> Task:
    """scikit-learn's digits: 1,797 handwritten 8x8 images in 17 grey levels, every fifth for the test.

    A `holdout` is taken from the rest. Training images are changed as the recipe's `augment` says.
    """
    bundled = load_digits()
    processor = ViTImageProcessorPil(
        size={"height": 8, "width": 8}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True
    )
    levels = (bundled.images * (255 / 16)).round().astype(np.uint8)
    pixels = processor([Image.fromarray(level) for level in levels], return_tensors="pt")["pixel_values"]
    train, test = split_off(Columns({"pixel_values": pixels, "labels": torch.from_numpy(bundled.target)}), 0.2)
    train, *held_out = split_off(train, recipe.holdout) if recipe.holdout else (train,)
    task = Task(
        name="digits",
        title="scikit-learn digits",
        kind="image-classification",
        source="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        train=train,
        splits={**dict(zip(["validation"], held_out, strict=False)), "test": test},
        labels=[str(label) for label in bundled.target_names],
        processor=processor,
        count=lambda batch: int((batch["labels"] != -100).sum()),
        score=lambda outputs, batch: {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()},
        collate=partial(changed, recipe=recipe) if recipe.augment != Augmentation() else stack,
        example=lambda model: recognised(model, train, task.labels),
        baselines=lambda: {"SVM (scikit-learn)": support_vectors(task)},
    )
    return task


def split_off(examples: Columns, share: float) -> tuple[Columns, Columns]:
    """(the rest, that share), both with the same proportion of each label; the same ones every time."""
    parts = train_test_split(
        np.arange(len(examples)), test_size=share, random_state=0, stratify=examples.columns["labels"].numpy()
    )
    rest, part = (Columns({name: column[part] for name, column in examples.columns.items()}) for part in parts)
    return rest, part


def changed(records: Sequence[Record], places: Sequence[int] | None, recipe: Recipe) -> Batch:
    """A batch of images; in training each changed by numbers that its place in the order decides."""
    batch = stack(records)
    if places is None:
        return batch
    draws = [np.random.default_rng((recipe.seed, place)).uniform(-1, 1, 6) for place in places]
    pixels = distort(batch["pixel_values"], recipe.augment, torch.tensor(np.stack(draws, axis=1), dtype=torch.float32))
    return {**batch, "pixel_values": pixels}


def distort(pixels: Tensor, augmentation: Augmentation, draws: Tensor) -> Tensor:
    """An affine change of each image (B, C, height, width); its darkest value fills what enters at the border.

    `draws` (6, B) in [-1, 1] are shares of what the augmentation allows: of the turn, of the stretch of width and of
    height, of the slant, of the shift to the right and of that down.
    """
    height, width = pixels.shape[2:]
    degrees, shift, scale, shear = astuple(augmentation)
    angle = draws[0] * math.radians(degrees)
    wide, high = 1 + draws[1:3] * scale
    slant = draws[3] * shear
    # Shifts are in pixels, and an image spans two units.
    right, down = draws[4] * shift * 2 / width, draws[5] * shift * 2 / height
    first = torch.stack((angle.cos() * wide, slant - angle.sin() * high, right), dim=-1)
    second = torch.stack((angle.sin() * wide, angle.cos() * high, down), dim=-1)
    grid = F.affine_grid(torch.stack((first, second), dim=1), list(pixels.shape), align_corners=False)
    dark = pixels.amin((1, 2, 3), keepdim=True)
    return F.grid_sample(pixels - dark, grid, padding_mode="zeros", align_corners=False) + dark


def recognised(model: Any, digits: Columns, labels: list[str]) -> Example:
    """The first image, and what the model sees in it."""
    pixels = digits.columns["pixel_values"][:1]
    with torch.no_grad():
        label = int(model(pixel_values=pixels.to(model.device)).logits.argmax())
    return Example(to_image(pixels[0]), {"label": labels[label]})


def to_image(pixels: Tensor) -> Image.Image:
    """The picture whose processed pixels (3, height, width) in [-1, 1] these are."""
    levels = ((pixels + 1) * 127.5).round().to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def support_vectors(task: Task) -> dict[str, dict[str, float]]:
    """Accuracy on each evaluated split of scikit-learn's support vector machine, set as in its own digits example."""
    machine = SVC(gamma=0.001).fit(*grey_levels(task.examples()))
    return {name: {"accuracy": float(machine.score(*grey_levels(split)))} for name, split in task.splits.items()}


def grey_levels(digits: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The digits as scikit-learn has them, rows of 64 levels from 0 to 16, and their labels."""
    batch = stack(digits.__getitems__(range(len(digits))))
    levels = (batch["pixel_values"][:, 0].flatten(1) + 1) * 8
    return levels.numpy(), batch["labels"].numpy()
