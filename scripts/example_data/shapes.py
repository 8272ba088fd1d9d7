"""What is to be seen? Shapes of a colour, drawn on the spot, and words for them; some pairs are in the test alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIDE = 32
NOISE = 12.0  # standard deviation, in levels of 256
# Drawn this much larger first, for smooth edges.
FINER = 4
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


def pairs(shapes: int) -> tuple[list[Pair], list[Pair]]:
    """Colours with the first so many shapes: those that are trained on, and the fourth of them that is not.

    Of each colour and of each shape there are some in training. ValueError for more shapes than there are.
    """
    if not 2 <= shapes <= len(SHAPES):
        raise ValueError(f"text.symbols={shapes}: there are 2 to {len(SHAPES)} shapes to draw")
    found = [(colour, shape) for colour in COLOURS for shape in list(SHAPES)[:shapes]]
    places = [(number // shapes + number % shapes) % 4 for number in range(len(found))]
    seen = [pair for pair, place in zip(found, places, strict=True) if place]
    return seen, [pair for pair, place in zip(found, places, strict=True) if not place]


def caption(pair: Pair) -> str:
    """A text for a colour and a shape."""
    colour, shape = pair
    return f"{'an' if colour[0] in 'aeiou' else 'a'} {colour} {shape}"


def outline(shape: str, middle: NDArray[np.float64], size: float, turn: float) -> NDArray[np.float64]:
    """The corners (N, 2) of a shape, x and y."""
    turns, reaches = np.array(SHAPES[shape]).T
    angles = 2 * np.pi * (turns + turn)
    found: NDArray[np.float64] = middle + size * reaches[:, None] * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    return found


def painted(
    parts: Sequence[tuple[str, NDArray[np.float64]]], side: int, noise: float, random: np.random.Generator
) -> NDArray[np.uint8]:
    """A noisy picture (side, side, 3) of outlines in shades of their colours, on grey of any lightness."""
    ground = tuple(int(level) for level in np.full(3, random.integers(90, 230)))
    image = Image.new("RGB", (side * FINER, side * FINER), ground)
    for colour, corners in parts:
        shade = np.clip(np.array(COLOURS[colour]) + random.integers(-20, 21, 3), 0, 255)
        places = [tuple(corner) for corner in FINER * corners]
        ImageDraw.Draw(image).polygon(places, fill=tuple(int(level) for level in shade))
    levels = np.asarray(image.resize((side, side), Image.Resampling.BOX), np.float64)
    return (levels + noise * random.standard_normal(levels.shape)).clip(0, 255).round().astype(np.uint8)


def drawn(pair: Pair, random: np.random.Generator) -> NDArray[np.uint8]:
    """A picture (SIDE, SIDE, 3) of a shape anywhere, of any size, turned a little, in a shade of the colour."""
    colour, shape = pair
    size, turn = random.uniform(5, 11), random.uniform(-0.05, 0.05)
    middle = random.uniform(size, SIDE - size, 2)
    return painted([(colour, outline(shape, middle, size, turn))], SIDE, NOISE, random)


def gallery(pairs: Sequence[Pair], count: int, seed: int) -> tuple[NDArray[np.uint8], list[int]]:
    """That many pictures, and the number of the pair that each shows; the same ones every time."""
    random = np.random.default_rng(seed)
    numbers = [int(number) for number in random.integers(0, len(pairs), count)]
    return np.stack([drawn(pairs[number], random) for number in numbers]), numbers
