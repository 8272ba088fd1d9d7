"""Pictures of folders: cropped by their place in training, in the middle otherwise, with classes by name."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features
from datasets import Image as ImageFeature
from PIL import Image

from qkv.scripts.data.stream import Position, Shard
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.image_classification import center_crop, random_crop

TINY = ["model.image_size=16", "model.patch_size=8", "model.hidden_size=8", "model.num_hidden_layers=1",
        "model.num_attention_heads=2", "batch_size=4", "shards=4", "max_steps=2", "warmup_steps=1",
        "precision=fp32"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in (("train", 6), ("validation", 2)):
        for name in ("cat", "dog"):
            (tmp_path / "data" / split / name).mkdir(parents=True)
            for number in range(count):
                random = np.random.default_rng([number, count, ord(name[0])])
                pixels = random.integers(0, 256, (20, 24 + number, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "data" / split / name / f"{number}.png")
    return tmp_path / "data"


def test_answers_that_nobody_has_are_not_asked_for(tmp_path: Path) -> None:
    """ImageNet's test on the Hub has -1 for every label."""
    kinds = Features({"image": ImageFeature(), "label": ClassLabel(names=["a", "b"])})
    pictures = [Image.new("RGB", (9, 9), (shade, 0, 0)) for shade in range(12)]
    train, validation = (
        Dataset.from_dict({"image": pictures[begin : begin + 4], "label": [0, 1, 0, 1]}, features=kinds)
        for begin in (0, 4)
    )
    hidden = Dataset.from_dict({"image": pictures[8:], "label": [-1] * 4}, features=kinds)
    DatasetDict({"train": train, "validation": validation, "test": hidden}).save_to_disk(str(tmp_path))
    words = [f"data={tmp_path}", "streaming=false"]
    assert data.load(recipe.load("vit-b16", words)).sizes() == {"train": 4, "validation": 4}


@pytest.mark.parametrize("words", [[], ["augment.degrees=10"]])
def test_a_place_decides_the_crop_or_change(words: list[str], folder: Path) -> None:
    task = data.load(recipe.load("vit-b16", [*TINY, f"data={folder}", "streaming=false", *words]))
    assert task.sizes() == {"train": 12, "validation": 4}
    records = task.splits["validation"].__getitems__([0, 1])
    one, other = task.collate(records, [3, 4])["pixel_values"], task.collate(records[1:], [4])["pixel_values"]
    assert one.shape == (2, 3, 16, 16) and torch.equal(one[1], other[0])
    assert not torch.equal(one, task.collate(records, [5, 6])["pixel_values"])
    plain = task.collate(records, None)["pixel_values"]
    assert torch.equal(plain, task.collate(records, None)["pixel_values"]) and not torch.equal(plain, one)
    images = [Image.open(record["image"]["path"]) for record in records]
    whole = task.processor(images, return_tensors="pt")["pixel_values"]
    assert torch.equal(plain, whole) == bool(words)  # as pipelines do


@pytest.mark.parametrize("corner", [0.0, 0.999])
def test_a_part_lies_within_and_may_be_mirrored(corner: float) -> None:
    image = Image.fromarray(np.arange(64 * 32, dtype=np.uint8).reshape(32, 64))
    assert center_crop(image).size == (28, 28)
    draws = np.array([corner, corner, corner, corner, 0.9])
    plain, mirrored = random_crop(image, draws), random_crop(image, np.array([*draws[:4], 0.1]))
    assert 1 <= plain.size[0] <= 64 and 1 <= plain.size[1] <= 32
    assert np.array_equal(np.asarray(plain)[:, ::-1], np.asarray(mirrored))


def test_images_of_a_stream_have_the_classes_of_their_folders(folder: Path) -> None:
    own = recipe.load("vit-b16", [*TINY, f"data={folder}"])
    task = data.load(own)
    assert task.labels == ["cat", "dog"] and task.splits["validation"]["label"][:] == [0, 0, 1, 1]
    for number in range(own.data.shards):
        for row in islice(Shard(task.train, own, number, vars(Position())).examples(), 3):
            width, height = row["image"].size
            random = np.random.default_rng([width - 24, 6, ord(task.labels[row["label"]][0])])
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            assert np.array_equal(np.asarray(row["image"]), pixels)


def test_data_to_evaluate_on_are_needed(tmp_path: Path) -> None:
    (tmp_path / "data" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "cat" / "0.png")
    with pytest.raises(ValueError, match="streaming=true"):
        data.load(recipe.load("vit-b16", [*TINY, f"data={tmp_path / 'data'}"]))
