"""Digits: the split that the guide fixes, the pixels that users' processors make, and changes that are what they say."""

import pytest
import torch
from PIL import Image

from qkv.scripts.lab.baselines import baselines
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(recipe.load("digits", ["holdout=0"]))


def test_pixels_are_what_the_processor_makes_of_an_image_file(task: Task) -> None:
    pixels = task.splits["test"].columns["pixel_values"][:3]
    assert pixels.shape == (3, 3, 8, 8) and pixels.min() == -1 and pixels.max() == 1
    levels = ((pixels + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    colour = [Image.fromarray(image) for image in levels]
    for images in (colour, [image.convert("L") for image in colour]):
        assert torch.equal(task.processor(images, return_tensors="pt")["pixel_values"], pixels)


def test_a_holdout_is_taken_from_training_and_leaves_the_test_alone(task: Task) -> None:
    held = data.load(recipe.load("digits", ["holdout=0.2"]))
    assert held.sizes() == {"train": 1149, "validation": 288, "test": 360}
    assert torch.equal(held.splits["test"].columns["pixel_values"], task.splits["test"].columns["pixel_values"])
    rows = {tuple(row.tolist()) for row in task.splits["test"].columns["pixel_values"].flatten(1)}
    seen = torch.cat([held.train.columns["pixel_values"], held.splits["validation"].columns["pixel_values"]]).flatten(1)
    assert not any(tuple(row.tolist()) in rows for row in seen)


def test_the_support_vector_machine_is_a_serious_rival(task: Task) -> None:
    assert baselines(task)["SVM (scikit-learn)"]["test"]["accuracy"] > 0.985
