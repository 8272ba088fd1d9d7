"""What is learned from? Each data set becomes a Task: examples in splits, their processor, how answers are scored."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from torch.utils.data import Dataset
from transformers import ViTImageProcessorPil

from qkv.scripts.training.recipe import Augmentation, Recipe, meant

Batch = dict[str, Tensor]


class Examples(Dataset[Batch]):
    """Columns of equal length, such as images and their labels, changed at random as they are drawn where asked to.

    A list of indices is answered by one batch, ready for the model.
    """

    def __init__(self, columns: Batch, change: Callable[[Batch], Batch] | None = None) -> None:
        self.columns, self.change = columns, change

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        batch = {name: column[list(indices)] for name, column in self.columns.items()}
        return self.change(batch) if self.change else batch


@dataclass(frozen=True)
class Task:
    """A data set as the loop sees it.

    `kind` is the pipeline's name for the task, `labels` are the class names. `splits` are evaluated. `count` says how
    many targets a batch has, `score` sums up right answers by metric: both add up over batches and processes.
    """

    name: str
    title: str
    kind: str
    source: str
    train: Examples
    splits: dict[str, Examples]
    labels: list[str]
    processor: Any
    count: Callable[[Batch], int]
    score: Callable[[Any, Batch], dict[str, Tensor]]

    def fingerprint(self) -> str:
        """SHA-256 over every example of every split, in order."""
        digest = hashlib.sha256()
        for name, split in {"train": self.train, **self.splits}.items():
            for column, values in split.columns.items():
                digest.update(f"{name} {column} {values.dtype} {tuple(values.shape)}".encode())
                digest.update(values.numpy().tobytes())
        return digest.hexdigest()

    def sizes(self) -> dict[str, int]:
        """Examples in each split."""
        return {name: len(split) for name, split in {"train": self.train, **self.splits}.items()}


def load(recipe: Recipe) -> Task:
    """The recipe's data, with a part of the training split held out where it asks for one."""
    if recipe.data not in TASKS:
        raise ValueError(f"there is no data set {recipe.data!r}; {meant(recipe.data, list(TASKS), 'data sets')}")
    task = TASKS[recipe.data]()
    train, splits = task.train, task.splits
    if recipe.holdout:
        train, held_out = split_off(train, recipe.holdout)
        splits = {"validation": held_out, **splits}
    if recipe.augment != Augmentation():
        train = Examples(train.columns, partial(distort, augmentation=recipe.augment))
    return replace(task, train=train, splits=splits)


def split_off(examples: Examples, share: float) -> tuple[Examples, Examples]:
    """(the rest, that share), both with the same proportion of each label; the same ones every time."""
    parts = train_test_split(
        np.arange(len(examples)), test_size=share, random_state=0, stratify=examples.columns["labels"].numpy()
    )
    rest, part = (Examples({name: column[part] for name, column in examples.columns.items()}) for part in parts)
    return rest, part


def digits() -> Task:
    """scikit-learn's digits: 1,797 handwritten 8x8 images in 17 grey levels, every fifth for the test."""
    bundled = load_digits()
    processor = ViTImageProcessorPil(
        size={"height": 8, "width": 8}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True
    )
    levels = (bundled.images * (255 / 16)).round().astype(np.uint8)
    pixels = processor([Image.fromarray(level) for level in levels], return_tensors="pt")["pixel_values"]
    train, test = split_off(Examples({"pixel_values": pixels, "labels": torch.from_numpy(bundled.target)}), 0.2)
    return Task(
        name="digits",
        title="scikit-learn digits",
        kind="image-classification",
        source="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        train=train,
        splits={"test": test},
        labels=[str(label) for label in bundled.target_names],
        processor=processor,
        count=lambda batch: int((batch["labels"] != -100).sum()),
        score=lambda outputs, batch: {"accuracy": (outputs.logits.argmax(-1) == batch["labels"]).sum()},
    )


TASKS = {"digits": digits}


def distort(batch: Batch, augmentation: Augmentation) -> Batch:
    """A random affine change of each image (B, C, height, width); its darkest value fills what enters at the border."""
    pixels = batch["pixel_values"]
    height, width = pixels.shape[2:]
    draw = torch.rand(6, len(pixels)) * 2 - 1
    angle = draw[0] * math.radians(augmentation.degrees)
    wide, high = 1 + draw[1:3] * augmentation.scale
    slant = draw[3] * augmentation.shear
    # Shifts are in pixels, and an image spans two units.
    right, down = draw[4] * augmentation.shift * 2 / width, draw[5] * augmentation.shift * 2 / height
    first = torch.stack((angle.cos() * wide, slant - angle.sin() * high, right), dim=-1)
    second = torch.stack((angle.sin() * wide, angle.cos() * high, down), dim=-1)
    grid = F.affine_grid(torch.stack((first, second), dim=1), list(pixels.shape), align_corners=False)
    dark = pixels.amin((1, 2, 3), keepdim=True)
    moved = F.grid_sample(pixels - dark, grid, padding_mode="zeros", align_corners=False) + dark
    return {**batch, "pixel_values": moved}


def support_vectors(task: Task) -> dict[str, float]:
    """Accuracy on each evaluated split of scikit-learn's support vector machine, set as in its own digits example."""
    machine = SVC(gamma=0.001).fit(*grey_levels(task.train))
    return {name: float(machine.score(*grey_levels(split))) for name, split in task.splits.items()}


def grey_levels(digits: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The digits as scikit-learn has them, rows of 64 levels from 0 to 16, and their labels."""
    levels = (digits.columns["pixel_values"][:, 0].flatten(1) + 1) * 8
    return levels.numpy(), digits.columns["labels"].numpy()
