"""Images of coloured shapes, drawn on the spot: one with a caption, or several with boxes."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from datasets import Image as ImageFeature
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from qkv.scripts.data.examples import Columns
from qkv.scripts.data.image_data import CaptionData, ObjectData
from qkv.scripts.data.splits.division import divide_evenly
from qkv.scripts.recipes.schema import Recipe

HOME = "https://pillow.readthedocs.io/en/stable/reference/ImageDraw.html"
CAPTION_SIDE, SCENE_SIDE = 32, 48  # pixels
CAPTION_NOISE, SCENE_NOISE = 12.0, 4.0  # standard deviation, in levels of 256
CAPTION_TESTS, SCENE_TESTS = 400, 300  # test images: of seen captions, and as many of others; of scenes
SIZES = (7.0, 14.0)  # of the shapes of scenes, from center to corners, in pixels
VOCAB_SIZE = 700  # of captions
FINER = 4  # shapes are drawn this much larger first, for smooth edges
COLOURS = {
    "red": (220, 40, 40), "orange": (240, 140, 30), "yellow": (240, 220, 50), "green": (50, 170, 70),
    "blue": (50, 80, 220), "purple": (140, 60, 180), "pink": (240, 140, 190), "brown": (130, 85, 50),
}  # fmt: skip
# Corners, as turns of the circle and distances from the middle; a circle is all corners.
SHAPES: dict[str, list[tuple[float, float]]] = {
    "circle": [(turn / 48, 1.0) for turn in range(48)],
    "square": [(turn / 4 + 1 / 8, 1.0) for turn in range(4)],
    "triangle": [(turn / 3 - 1 / 4, 1.0) for turn in range(3)],
    "star": [(turn / 10 - 1 / 4, (1.0, 0.4)[turn % 2]) for turn in range(10)],
    "cross": [(turn / 4 + part, far) for turn in range(4) for part, far in ((-0.07, 1.0), (0.07, 1.0), (0.125, 0.45))],
    "hexagon": [(turn / 6, 1.0) for turn in range(6)],
}
Pair = tuple[str, str]


def captioned_shapes(recipe: Recipe) -> CaptionData:
    """Draw `text.made` images of `text.symbols` shapes in eight colours, with captions.

    A fourth of the pairs of colour and shape is in the test alone. A `holdout` is taken from the training images.
    """
    seen, unseen = pairs(recipe.text.symbols)
    train = numbered([gallery(seen, recipe.text.made, 0)])
    levels, numbers = gallery(unseen, CAPTION_TESTS, 2)
    test = numbered([gallery(seen, CAPTION_TESTS, 1), (levels, [len(seen) + number for number in numbers])])
    held = int(recipe.text.made * recipe.data.holdout)
    title = f"{recipe.text.symbols} shapes in eight colours, and captions"
    captions, splits = [caption(pair) for pair in (*seen, *unseen)], {"test": test}
    splits = {"validation": train.select(slice(0, held)), **splits} if held else splits
    train = train.select(slice(held, None))
    return CaptionData("shapes-captions", title, HOME, captions, len(seen), train, splits, CAPTION_SIDE, VOCAB_SIZE)


def numbered(galleries: Sequence[tuple[NDArray[np.uint8], list[int]]]) -> Columns:
    """Join galleries, and number their images."""
    levels = torch.from_numpy(np.concatenate([levels for levels, _ in galleries]))
    captions = torch.tensor([number for _, numbers in galleries for number in numbers])
    return Columns({"levels": levels, "caption": captions, "place": torch.arange(len(captions))})


def pairs(shapes: int) -> tuple[list[Pair], list[Pair]]:
    """Pair colours with the first so many shapes; return pairs for training, and the fourth of them for the test alone.

    Every colour and every shape occurs in training. ValueError for more shapes than there are.
    """
    if not 2 <= shapes <= len(SHAPES):
        raise ValueError(f"text.symbols={shapes}: there are 2 to {len(SHAPES)} shapes to draw")
    every = [(colour, shape) for colour in COLOURS for shape in list(SHAPES)[:shapes]]
    places = [(number // shapes + number % shapes) % 4 for number in range(len(every))]
    seen = [pair for pair, place in zip(every, places, strict=True) if place]
    return seen, [pair for pair, place in zip(every, places, strict=True) if not place]


def caption(pair: Pair) -> str:
    """Return the caption of a colour and a shape."""
    colour, shape = pair
    return f"{'an' if colour[0] in 'aeiou' else 'a'} {colour} {shape}"


def outline(shape: str, middle: NDArray[np.float64], size: float, turn: float) -> NDArray[np.float64]:
    """Return the corners (N, 2) of a shape, x and y."""
    turns, reaches = np.array(SHAPES[shape]).T
    angles = 2 * np.pi * (turns + turn)
    corners: NDArray[np.float64] = middle + size * reaches[:, None] * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    return corners


def paint(
    parts: Sequence[tuple[str, NDArray[np.float64]]], side: int, noise: float, random: np.random.Generator
) -> NDArray[np.uint8]:
    """Paint a noisy image (side, side, 3) of outlines in shades of their colours, on grey of any lightness."""
    ground = tuple(int(level) for level in np.full(3, random.integers(90, 230)))
    image = Image.new("RGB", (side * FINER, side * FINER), ground)
    for colour, corners in parts:
        shade = np.clip(np.array(COLOURS[colour]) + random.integers(-20, 21, 3), 0, 255)
        places = [tuple(corner) for corner in FINER * corners]
        ImageDraw.Draw(image).polygon(places, fill=tuple(int(level) for level in shade))
    levels = np.asarray(image.resize((side, side), Image.Resampling.BOX), np.float64)
    return (levels + noise * random.standard_normal(levels.shape)).clip(0, 255).round().astype(np.uint8)


def gallery(pairs: Sequence[Pair], count: int, seed: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Draw images, and return the number of the pair that each shows; the same ones every time.

    A shape is anywhere, of any size, turned a little, in a shade of the colour.
    """
    random, images = np.random.default_rng(seed), []
    numbers = [int(number) for number in random.integers(0, len(pairs), count)]
    for colour, shape in (pairs[number] for number in numbers):
        size, turn = random.uniform(5, 11), random.uniform(-0.05, 0.05)
        corners = outline(shape, random.uniform(size, CAPTION_SIDE - size, 2), size, turn)
        images.append(paint([(colour, corners)], CAPTION_SIDE, CAPTION_NOISE, random))
    return np.stack(images), numbers


def scenes(recipe: Recipe) -> ObjectData:
    """Draw `text.made` images of one or two of the first `text.symbols` shapes for training, and 300 for the test.

    ValueError for more shapes than there are.
    """
    if recipe.text.symbols > len(SHAPES):
        raise ValueError(f"text.symbols={recipe.text.symbols}: there are {len(SHAPES)} shapes to draw")
    names = list(SHAPES)[: recipe.text.symbols]
    # As data sets of the Hub have them; boxes are left, top, width and height in pixels.
    objects = {"bbox": List(List(Value("float64"), length=4)), "category": List(ClassLabel(names=names))}
    features = Features({"image": ImageFeature(decode=False), "objects": objects})
    tables = {
        split: Dataset.from_list(
            [scene(names, np.random.default_rng((seed, place))) for place in range(count)], features
        )
        for seed, (split, count) in enumerate({"train": recipe.text.made, "test": SCENE_TESTS}.items())
    }
    division = divide_evenly({split: len(table) for split, table in tables.items()}, recipe)
    return ObjectData("shapes-detect", "shapes in boxes", HOME, division.of_tables(tables), names)


def scene(names: list[str], random: np.random.Generator) -> dict[str, Any]:
    """Draw one or two shapes, of which the second covers at most a corner of the first."""
    wanted, shapes = int(random.integers(1, 3)), list[tuple[str, NDArray[np.float64]]]()
    while len(shapes) < wanted:
        name, size, turn = str(random.choice(names)), random.uniform(*SIZES), random.uniform(-0.05, 0.05)
        corners = outline(name, random.uniform(size, SCENE_SIDE - size, 2), size, turn)
        if not any(overlap(corners, other) for _, other in shapes):
            shapes.append((name, corners))
    levels = paint(
        [(str(random.choice(list(COLOURS))), corners) for _, corners in shapes], SCENE_SIDE, SCENE_NOISE, random
    )
    file = BytesIO()
    Image.fromarray(levels).save(file, "png")
    return {
        "image": {"bytes": file.getvalue(), "path": None},
        "objects": {"bbox": [box(corners) for _, corners in shapes], "category": [name for name, _ in shapes]},
    }


def box(corners: NDArray[np.float64]) -> list[float]:
    """Return the bounding box of corners (N, 2): left, top, width, height."""
    return [*corners.min(0).tolist(), *np.ptp(corners, axis=0).tolist()]


def overlap(corners: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Tell whether the bounding boxes of both share more than a tenth of the smaller one."""
    sides = np.minimum(corners.max(0), others.max(0)) - np.maximum(corners.min(0), others.min(0))
    least = min(float(np.ptp(points, axis=0).prod()) for points in (corners, others))
    return bool(sides.clip(min=0).prod() > least / 10)
