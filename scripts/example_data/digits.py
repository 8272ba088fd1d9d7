"""The digits of scikit-learn: images to classify, and captions with sequences of grey levels, a token for each pixel.

Source: Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, https://arxiv.org/abs/2102.12092; pixels as tokens: Chen
    et al. 2020, Generative Pretraining from Pixels
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.svm import SVC

from qkv.scripts.data.corpus import Corpus, Generate, PromptedCorpus
from qkv.scripts.data.examples import Batch, Columns, Record, stack
from qkv.scripts.data.image import augment
from qkv.scripts.data.image_data import ImageData, image_processor
from qkv.scripts.recipes.schema import Augmentation, Recipe

HOME = "https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html"
NAMES = "zero one two three four five six seven eight nine".split()
SIDE, LEVELS = 8, 17
STROKES = ("light", "bold")
DRAWN = 6  # images of each caption on the picture
PICTURE = f"Drawn by the model, {DRAWN} for each caption, and on the right as many by people (test split)"


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


def digit_drawings(recipe: Recipe) -> PromptedCorpus:
    """Make captions such as "a bold seven" of digits, whose targets are 8x8 pixels in 17 grey levels, row by row.

    A digit is bold when it has more ink than half of those of its class in training. The test split is that of the
    recipe digits. Generated images are scored by support vector machines: one trained to classify the training images,
    and one to tell generated images from them.
    """
    bundled = load_digits()
    whole = Columns({"levels": torch.from_numpy(bundled.data).long(), "labels": torch.from_numpy(bundled.target)})
    train, test = (part.columns for part in split_off(whole, 0.2))
    ink = [float(train["levels"][train["labels"] == digit].sum(1).median()) for digit in range(len(NAMES))]
    splits = {name: list(zip(part["levels"], part["labels"].tolist(), strict=True))
              for name, part in {"train": train, "test": test}.items()}  # fmt: skip
    texts = {name: [caption(*image, ink) for image in images] for name, images in splits.items()}
    targets = {name: [as_words(levels.tolist()) for levels, _ in images] for name, images in splits.items()}
    corpus = Corpus("digit-drawings", "scikit-learn digits and captions", HOME, texts, targets=targets)
    score = partial(score_drawings, train["levels"].numpy(), train["labels"].numpy(), ink)
    usage = Path(__file__).with_suffix(".usage.txt").read_text(encoding="utf-8").strip()
    return PromptedCorpus(corpus, "pixel", SIDE, score, partial(draw, corpus), usage)


def caption(levels: torch.Tensor, digit: int, ink: Sequence[float]) -> str:
    """Return the caption of an image."""
    return f"a {STROKES[int(levels.sum() > ink[digit])]} {NAMES[digit]}"


def as_words(levels: Sequence[int]) -> str:
    """Write the levels of an image as words."""
    return " ".join(map(str, levels))


def parse(drawing: str) -> np.ndarray:
    """Read the levels (64,) of an image that is written in words."""
    return np.array([int(word) for word in drawing.split()])


def score_drawings(
    people: np.ndarray, labels: np.ndarray, ink: Sequence[float], prompts: Sequence[str], drawings: Sequence[str]
) -> dict[str, float]:
    """Return the shares of images with the digit and the ink of their caption, and of those told from people's.

    The last is 0.5 by chance.
    """
    levels = np.stack([parse(drawing) for drawing in drawings])
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


def draw(corpus: Corpus, generate: Generate, folder: Path) -> dict[str, str]:
    """Draw generated images: a row for each digit, light ones, bold ones, and those of people."""
    captions = [f"a {stroke} {name}" for name in NAMES for stroke in STROKES]
    drawn = generate([text for text in captions for _ in range(DRAWN)])
    ours = [tile(drawn[start : start + DRAWN]) for start in range(0, len(drawn), DRAWN)]
    pairs = list(zip(corpus.texts["test"], corpus.targets["test"], strict=True))
    theirs = [tile([target for text, target in pairs if text.endswith(name)][:DRAWN]) for name in NAMES]
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(1, 3)
    columns = {"a light …": ours[::2], "a bold …": ours[1::2], "people": theirs}
    for axis, (title, rows) in zip(axes, columns.items(), strict=True):
        axis.imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=LEVELS - 1)
        axis.set(title=title, xticks=[], yticks=[])
    axes[0].set_yticks([(SIDE + 1) * row + SIDE / 2 for row in range(len(NAMES))], NAMES)
    figure.savefig(folder / "drawings.png", dpi=110)
    return {"drawings.png": PICTURE}


def tile(drawings: Sequence[str]) -> np.ndarray:
    """Join images side by side, with a line of blank pixels between them."""
    return np.concatenate([np.pad(parse(each).reshape(SIDE, SIDE), ((0, 1), (0, 1))) for each in drawings], axis=1)
