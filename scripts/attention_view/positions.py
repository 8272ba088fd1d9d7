"""The positions that attend and are attended to: tokens, patches of an image, frames of a recording, object queries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["tokens", "patches", "frames", "objects"]
# Characters of a label that are kept, and of grids the tokens before the patches that are tried.
LONGEST, PREFIXES = 80, 8


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of one sequence, in their order.

    Patches fill `grid`, its rows and columns, after `prefix` other tokens. `picture` is a PNG of the image or of the
    spectrogram. `boxes` (left, top, width, height) of objects are shares of the picture. `rest` counts
    positions that were left out; as keys they share one more column.
    """

    kind: Kind
    labels: list[str]
    grid: tuple[int, int] | None = None
    prefix: int = 0
    picture: bytes | None = None
    boxes: list[list[float]] | None = None
    rest: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Sequence[int], *, rest: int = 0) -> "Positions":
        """Return some positions; `rest` more were left out."""
        labels = [self.labels[index] for index in indices]
        boxes = None if self.boxes is None else [self.boxes[index] for index in indices]
        return replace(self, labels=labels, boxes=boxes, rest=self.rest + rest)


def numbered(count: int) -> Positions:
    """Name positions by their numbers, where nothing else is to be said of them."""
    return Positions("tokens", [str(number) for number in range(count)])


def token_labels(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token; its name in the vocabulary where it is a part of a character or has no text."""
    if tokenizer is None:
        return [str(number) for number in ids]
    labels = []
    for number in ids:
        text = tokenizer.decode([number])
        if not text or "\N{REPLACEMENT CHARACTER}" in text:
            text = str(tokenizer.convert_ids_to_tokens(number))
        labels.append(shortened(text))
    return labels


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most so many characters, which ends in … where it was longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def patches(count: int, height: int, width: int, patch: Any, picture: bytes) -> Positions | None:
    """Return the positions of an image of some pixels; None where they are no grid of its shape.

    `patch` is the side of a patch, a pair of sides, or None where the config has none, as of convolutional features.
    """
    shape = grid_of(count, height, width, patch)
    if shape is None:
        return None
    (rows, columns), prefix = shape
    names = ["class"] + [f"extra {number}" for number in range(1, prefix)]
    places = [f"({1 + place // columns}, {1 + place % columns})" for place in range(rows * columns)]
    return Positions("patches", names[:prefix] + places, (rows, columns), prefix, picture)


def grid_of(count: int, height: int, width: int, patch: Any) -> tuple[tuple[int, int], int] | None:
    """Return the rows and columns of patches, and how many of `count` positions come before them; None for no grid."""
    if patch is not None:
        sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
        rows, columns = height // sides[0], width // sides[1]
        return ((rows, columns), count - rows * columns) if 0 <= count - rows * columns <= PREFIXES else None
    for prefix in range(min(PREFIXES, count)):
        for rows in range(1, count - prefix + 1):
            columns, left = divmod(count - prefix, rows)
            # Strides round up, so that the shape of the grid is that of the image but for a part of a row or column.
            apart = max(abs(rows - columns * height / width), abs(columns - rows * width / height))
            if not left and apart < 1:
                return (rows, columns), prefix
    return None


def frames(count: int, seconds: float | None, picture: bytes) -> Positions:
    """Return the positions of a recording, named by the time at which they begin where that can be told."""
    labels = [f"{number * seconds / count:.2f} s" if seconds else f"frame {number}" for number in range(count)]
    return Positions("frames", labels, picture=picture)


def objects(labels: Sequence[str], boxes: Sequence[Sequence[float]]) -> Positions:
    """Return object queries with what they predict; boxes are (centre x, centre y, width, height), as shares."""
    corners = [[x - width / 2, y - height / 2, width, height] for x, y, width, height in boxes]
    return Positions("objects", list(labels), boxes=[[round(value, 4) for value in box] for box in corners])
