"""Take from the first row of the test what the programs of a card ask about."""

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 300  # characters of a text on a card


def first(splits: Mapping[str, Sequence[Any]]) -> Any | None:
    """Return the first row of the test split, or of the validation split where there is no other; None for neither."""
    return next((splits[name][0] for name in ("test", "validation") if len(splits.get(name, ()))), None)


def shorten(text: str) -> str:
    """Return a text, or as many of its first words as a card has room for."""
    text = text.strip()
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(maxsplit=1)[0]


def of_text(text: str | None) -> dict[str, Any]:
    """Return a text for the programs to ask about."""
    return {"prompt": shorten(text)} if text else {}


def of_image(size: tuple[int, int], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Describe an image, whose file the programs name by a placeholder."""
    shown = f", with {' and '.join(map(repr, labels[:3]))}{' and more' if len(labels) > 3 else ''}" if labels else ""
    return {"about": shorten(f"image.png: such as the first of the test, of {size[0]} x {size[1]} pixels{shown}")}


def of_recording(seconds: float, text: str) -> dict[str, Any]:
    """Describe a recording, whose file the programs name by a placeholder."""
    return {"about": shorten(f"speech.wav: such as the first of the test, {seconds:.1f} s of {text!r}")}
