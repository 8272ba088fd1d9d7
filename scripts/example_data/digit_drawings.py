"""How is a digit drawn? scikit-learn's digits as captions and the grey levels of their pixels, one word for each.

Source: Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, https://arxiv.org/abs/2102.12092; pixels as tokens: Chen
    et al. 2020, Generative Pretraining from Pixels
"""

from collections.abc import Sequence
from functools import partial
from math import log2
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.example_data.digits import split_off
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.baselines import Baselines, evaluated
from qkv.scripts.tasks.prompted_generation import Craft, Maker, prompted
from qkv.scripts.tasks.task import Columns, Task

NAMES = "zero one two three four five six seven eight nine".split()
SIDE, LEVELS = 8, 17
STROKES = ("light", "bold")
# Drawings of each caption on the picture.
DRAWN = 6
PICTURE = {
    "drawings.png": f"Drawn by the model, {DRAWN} for each caption, and on the right as many by people (test split)"
}
USAGE = """\
from PIL import Image
from transformers import pipeline

draw = pipeline("text-generation", model=...)
text = draw("a bold seven", return_full_text=False)[0]["generated_text"]
levels = [int(word) for word in text.split()]
Image.frombytes("L", (8, 8), bytes(15 * level for level in levels)).resize((256, 256)).save("seven.png")
print(levels)"""


def digit_drawings(recipe: Recipe) -> Task:
    """Captions such as "a bold seven" and what they are captions of: 8x8 pixels in 17 grey levels, row by row.

    A digit is bold when it has more ink than half of those of its kind in training. The test split is that of the
    recipe digits. Judges are support vector machines that know nothing of the model: one that has learned to read from
    the training images, and one that learns to tell drawings from them.
    """
    bundled = load_digits()
    whole = Columns({"levels": torch.from_numpy(bundled.data).long(), "labels": torch.from_numpy(bundled.target)})
    train, test = (part.columns for part in split_off(whole, 0.2))
    ink = [float(train["levels"][train["labels"] == digit].sum(1).median()) for digit in range(len(NAMES))]
    splits = {
        name: list(zip(part["levels"], part["labels"].tolist(), strict=True))
        for name, part in {"train": train, "test": test}.items()
    }
    corpus = Corpus(
        "digit-drawings",
        "scikit-learn digits and captions",
        "https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        texts={name: [caption(*image, ink) for image in images] for name, images in splits.items()},
        targets={name: [written(levels.tolist()) for levels, _ in images] for name, images in splits.items()},
    )
    judge = partial(judged, train["levels"].numpy(), train["labels"].numpy(), ink)
    craft = Craft("pixel", SIDE, judge, partial(pictures, corpus), partial(simpler, judge), USAGE)
    return prompted(recipe, corpus, craft)


def caption(levels: torch.Tensor, digit: int, ink: Sequence[float]) -> str:
    """What an image is said to show."""
    return f"a {STROKES[int(levels.sum() > ink[digit])]} {NAMES[digit]}"


def written(levels: Sequence[int]) -> str:
    """An image as words."""
    return " ".join(map(str, levels))


def read(drawing: str) -> np.ndarray:
    """The levels of an image that is written in words (64,)."""
    return np.array([int(word) for word in drawing.split()])


def judged(
    people: np.ndarray, labels: np.ndarray, ink: Sequence[float], prompts: Sequence[str], drawings: Sequence[str]
) -> dict[str, float]:
    """Shares of drawings that are what was asked for, digit and ink, and of those that can be told from people's.

    Half can be told by tossing a coin.
    """
    levels = np.stack([read(drawing) for drawing in drawings])
    both = np.concatenate((levels, people[: len(levels)]))
    sides = np.arange(len(both)) < len(levels)
    machine = SVC(gamma=0.001).fit(people, labels)
    wanted = [(STROKES.index(stroke), NAMES.index(name)) for _, stroke, name in map(str.split, prompts)]
    strokes, digits = np.array(wanted).T
    bold = levels.sum(1) > np.array(ink)[digits]
    return {
        "drawn_accuracy": float((machine.predict(levels) == digits).mean()),
        "stroke_accuracy": float((bold == strokes).mean()),
        "told_apart": float(cross_val_score(SVC(gamma=0.002, C=10.0), both, sides, cv=3).mean()),
    }


def simpler(judge: partial[dict[str, float]], corpus: Corpus) -> Baselines:
    """What people drew, under the same judge, and pixels that know their caption and place and not each other."""
    chances = histogram(corpus)
    random = np.random.default_rng(0)
    people, alone = {}, {}
    for name in evaluated(corpus):
        prompts, drawings = corpus.texts[name], corpus.targets[name]
        people[name] = judge(prompts, drawings)
        tables = np.stack([chances[prompt] for prompt in prompts])  # (N, 64, 17)
        seen = np.take_along_axis(tables, np.stack(list(map(read, drawings)))[..., None], axis=2)
        draws = (tables.cumsum(2) < random.uniform(size=(*tables.shape[:2], 1))).sum(2).clip(max=LEVELS - 1)
        bits = float(-np.log2(seen).mean())
        alone[name] = {"loss": bits / log2(np.e), "bits_per_pixel": bits} | judge(prompts, list(map(written, draws)))
    return {"what people drew": people, "each pixel by itself": alone}


def histogram(corpus: Corpus) -> dict[str, np.ndarray]:
    """How likely each level is at each pixel under a caption, (64, 17), with a tenth of an image of every level."""
    counts: dict[str, np.ndarray] = {}
    for prompt, drawing in zip(corpus.texts["train"], corpus.targets["train"], strict=True):
        found = counts.setdefault(prompt, np.full((SIDE * SIDE, LEVELS), 0.1))
        found[np.arange(SIDE * SIDE), read(drawing)] += 1
    return {prompt: found / found.sum(1, keepdims=True) for prompt, found in counts.items()}


def pictures(corpus: Corpus, maker: Maker, folder: Path) -> dict[str, str]:
    """Draw a picture of drawings: a row for each digit, light ones before bold ones, and then those of people."""
    captions = [f"a {stroke} {name}" for name in NAMES for stroke in STROKES]
    drawn = maker([text for text in captions for _ in range(DRAWN)])
    ours = [tile(drawn[start : start + DRAWN]) for start in range(0, len(drawn), DRAWN)]
    theirs = [
        tile([target for text, target in zip(corpus.texts["test"], corpus.targets["test"], strict=True)
              if text.endswith(name)][:DRAWN])
        for name in NAMES
    ]  # fmt: skip
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(1, 3)
    columns = {"a light …": ours[::2], "a bold …": ours[1::2], "people": theirs}
    for axis, (title, rows) in zip(axes, columns.items(), strict=True):
        axis.imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=LEVELS - 1)
        axis.set(title=title, xticks=[], yticks=[])
    axes[0].set_yticks([(SIDE + 1) * row + SIDE / 2 for row in range(len(NAMES))], NAMES)
    figure.savefig(folder / "drawings.png", dpi=110)
    return dict(PICTURE)


def tile(drawings: Sequence[str]) -> np.ndarray:
    """Images side by side, with a line of blank pixels between them."""
    return np.concatenate([np.pad(read(drawing).reshape(SIDE, SIDE), ((0, 1), (0, 1))) for drawing in drawings], axis=1)
