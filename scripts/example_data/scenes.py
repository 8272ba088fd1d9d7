"""Where are the shapes? Pictures of one or two of them, drawn on the spot, and the box around each."""

from io import BytesIO
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Features, List, Value
from datasets import Image as Picture
from numpy.typing import NDArray
from PIL import Image

from qkv.scripts.example_data.shapes import COLOURS, SHAPES, outline, painted
from qkv.scripts.recipes.schema import Recipe

SIDE = 48
TESTED = 300
SIZES = (7.0, 14.0)  # from the middle of a shape to its corners, in pixels
NOISE = 4.0  # standard deviation, in levels of 256
# As data sets of the Hub have it; boxes are left, top, width and height in pixels.
BOXES = {"bbox": List(List(Value("float64"), length=4))}


def scenes(recipe: Recipe) -> dict[str, Dataset]:
    """`text.made` pictures of the first `text.symbols` shapes to learn from, and 300 to be tested on.

    ValueError for more shapes than there are.
    """
    if recipe.text.symbols > len(SHAPES):
        raise ValueError(f"text.symbols={recipe.text.symbols}: there are {len(SHAPES)} shapes to draw")
    names = list(SHAPES)[: recipe.text.symbols]
    objects = {**BOXES, "category": List(ClassLabel(names=names))}
    features = Features({"image": Picture(decode=False), "objects": objects})
    counts = {"train": recipe.text.made, "test": TESTED}
    found = {}
    for seed, (split, count) in enumerate(counts.items()):
        records = [scene(names, np.random.default_rng((seed, place))) for place in range(count)]
        found[split] = Dataset.from_list(records, features)
    return found


def scene(names: list[str], random: np.random.Generator) -> dict[str, Any]:
    """A picture of one or two shapes, of which the second covers at most a corner of the first."""
    wanted, shapes = int(random.integers(1, 3)), list[tuple[str, NDArray[np.float64]]]()
    while len(shapes) < wanted:
        name, size, turn = str(random.choice(names)), random.uniform(*SIZES), random.uniform(-0.05, 0.05)
        corners = outline(name, random.uniform(size, SIDE - size, 2), size, turn)
        if not any(shared(corners, other) for _, other in shapes):
            shapes.append((name, corners))
    levels = painted([(str(random.choice(list(COLOURS))), corners) for _, corners in shapes], SIDE, NOISE, random)
    file = BytesIO()
    Image.fromarray(levels).save(file, "png")
    return {
        "image": {"bytes": file.getvalue(), "path": None},
        "objects": {"bbox": [box(corners) for _, corners in shapes], "category": [name for name, _ in shapes]},
    }


def box(corners: NDArray[np.float64]) -> list[float]:
    """The least box around corners (N, 2): left, top, width, height."""
    return [*corners.min(0).tolist(), *np.ptp(corners, axis=0).tolist()]


def shared(corners: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether the boxes around both share more than a tenth of the smaller one."""
    sides = np.minimum(corners.max(0), others.max(0)) - np.maximum(corners.min(0), others.min(0))
    least = min(float(np.ptp(found, axis=0).prod()) for found in (corners, others))
    return bool(sides.clip(min=0).prod() > least / 10)
