"""scikit-learn's digits: the pixels that users' processors make, captions that are true, rivals and judges."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.example_data.digits import NAMES, as_words, draw
from qkv.scripts.lab.baselines import baselines
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task


@pytest.fixture(scope="module")
def digits() -> Task:
    return data.load(recipe.load("digits", ["holdout=0.2"]))


@pytest.fixture(scope="module")
def drawings() -> Task:
    return data.load(recipe.load("digits-draw", ["holdout=0"]))


def test_pixels_are_those_of_the_processor_and_no_image_is_in_two_splits(digits: Task) -> None:
    pixels = digits.splits["test"].columns["pixel_values"]
    assert pixels.shape == (360, 3, 8, 8) and pixels.min() == -1 and pixels.max() == 1
    levels = ((pixels[:3] + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    colour = [Image.fromarray(image) for image in levels]
    for images in (colour, [image.convert("L") for image in colour]):
        assert torch.equal(digits.processor(images, return_tensors="pt")["pixel_values"], pixels[:3])
    whole = data.load(recipe.load("digits", ["holdout=0"]))
    assert torch.equal(whole.splits["test"].columns["pixel_values"], pixels)
    sizes = {"train": 1149, "validation": 288, "test": 360}
    rows = {
        name: {row.numpy().tobytes() for row in split.columns["pixel_values"]} for name, split in digits.every.items()
    }
    assert digits.sizes() == sizes and len(set().union(*rows.values())) == sum(map(len, rows.values()))
    assert baselines(digits)["SVM (scikit-learn)"]["test"]["accuracy"] > 0.98


def test_captions_tell_half_of_each_digit_bold(drawings: Task) -> None:
    rows = drawings.train.columns["input_ids"]
    found = [text.split() for text in drawings.processor.batch_decode(rows, skip_special_tokens=True)]
    for name in NAMES:
        light, bold = ([sum(map(int, words[3:])) for words in found if words[1:3] == [stroke, name]]
                       for stroke in ("light", "bold"))  # fmt: skip
        assert max(light) <= min(bold) and abs(len(light) - len(bold)) <= 0.1 * len(bold)


def test_baselines_know_people_from_noise(drawings: Task) -> None:
    found = baselines(drawings)
    people, alone = found["what people drew"]["test"], found["each pixel by itself"]["test"]
    assert people["drawn_accuracy"] > 0.95 and people["stroke_accuracy"] == 1.0
    assert people["told_apart"] < 0.6 < 0.8 < alone["told_apart"]
    assert 1.5 < alone["bits_per_pixel"] < 2.5


def test_the_picture_holds_drawings_of_every_caption(tmp_path: Path) -> None:
    asked: list[str] = []

    def generate(prompts: list[str]) -> list[str]:
        asked.extend(prompts)
        return [as_words([16] * 64)] * len(prompts)

    people = {"test": [f"a bold {name}" for name in NAMES for _ in range(6)]}
    corpus = Corpus("d", "d", "s", texts=people, targets={"test": [as_words([8] * 64)] * 60})
    assert (
        {path.name for path in tmp_path.iterdir()} == set() != set(draw(corpus, generate, tmp_path)) == {"drawings.png"}
    )
    assert len(set(asked)) == 20 and np.asarray(Image.open(tmp_path / "drawings.png")).shape[1] > 600
