"""Digits as words: the same images as elsewhere, captions that are true, judges that see the difference."""

from pathlib import Path

import pytest
from PIL import Image

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.example_data.digit_drawings import NAMES, as_words, draw
from qkv.scripts.lab.baselines import baselines
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(recipe.load("digits-draw", ["holdout=0"]))


def texts(task: Task, split: str) -> list[str]:
    examples = task.train if split == "train" else task.splits[split]
    return task.processor.batch_decode(examples.columns["input_ids"], skip_special_tokens=True)


def test_captions_tell_half_of_each_digit_bold(task: Task) -> None:
    found = [text.split() for text in texts(task, "train")]
    for name in NAMES:
        ink = {stroke: [sum(map(int, words[3:])) for words in found if words[1:3] == [stroke, name]]
               for stroke in ("light", "bold")}  # fmt: skip
        assert max(ink["light"]) <= min(ink["bold"])
        assert abs(len(ink["light"]) - len(ink["bold"])) <= 0.1 * len(ink["bold"])


def test_baselines_know_people_from_noise(task: Task) -> None:
    found = baselines(task)
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
    products = draw(corpus, generate, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(products) == {"drawings.png"}
    assert len(set(asked)) == 20 and Image.open(tmp_path / "drawings.png").width > 600
