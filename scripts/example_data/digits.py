"""The digits of scikit-learn, random affine changes of them for training, and the accuracy of an SVM."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from qkv.scripts.data.augmentation import augment
from qkv.scripts.data.corpus import Baselines
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.image_data import ImageData, image_processor
from qkv.scripts.recipes.schema import Augmentation, Recipe

HOME = "https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html"


def digits(recipe: Recipe) -> ImageData:
    """Load scikit-learn's digits: 1,797 handwritten 8x8 images in 17 grey levels, every fifth for the test.

    A `holdout` is taken from the rest. Training images are changed as the recipe's `augment` says.
    """
    bundled, processor, holdout = load_digits(), image_processor(8), recipe.data.holdout
    levels = (bundled.images * (255 / 16)).round().astype(np.uint8)
    pixels = processor([Image.fromarray(level) for level in levels], return_tensors="pt")["pixel_values"]
    train, test = split_off(Columns({"pixel_values": pixels, "labels": torch.from_numpy(bundled.target)}), 0.2)
    train, *held_out = split_off(train, holdout) if holdout else (train,)
    splits = {**dict(zip(["validation"], held_out, strict=False)), "test": test}
    return ImageData(
        "digits", "scikit-learn digits", HOME, train, splits, [str(label) for label in bundled.target_names], processor,
        collate=partial(augment_batch, recipe=recipe) if recipe.data.augment != Augmentation() else stack,
        baselines=partial(support_vectors, train, splits),
    )  # fmt: skip


def split_off(examples: Columns, share: float) -> tuple[Columns, Columns]:
    """Split into (the rest, that share), both with the same proportion of each label; the same ones every time."""
    rest, part = train_test_split(
        np.arange(len(examples)), test_size=share, random_state=0, stratify=examples.columns["labels"].numpy()
    )
    return examples.select(rest), examples.select(part)


def augment_batch(records: Sequence[Record], places: Sequence[int] | None, recipe: Recipe) -> Batch:
    """Make a batch of images, in training changed at random."""
    batch = stack(records)
    return {**batch, "pixel_values": augment(batch["pixel_values"], places, recipe)}


def support_vectors(train: Columns, splits: dict[str, Columns]) -> Baselines:
    """Measure the accuracy of scikit-learn's support vector machine, set as in its own digits example."""
    machine = SVC(gamma=0.001).fit(*grey_levels(train))
    scores = {name: {"accuracy": float(machine.score(*grey_levels(split)))} for name, split in splits.items()}
    return {"SVM (scikit-learn)": scores}


def grey_levels(digits: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return digits as scikit-learn has them, rows of 64 levels from 0 to 16, and their labels."""
    levels = (digits.columns["pixel_values"][:, 0].flatten(1) + 1) * 8
    return levels.numpy(), digits.columns["labels"].numpy()
