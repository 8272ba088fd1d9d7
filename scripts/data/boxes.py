"""Boxes of objects: in the image that they are about, whichever way its EXIF orientation turns it."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from qkv.scripts.data.examples import Record
from qkv.scripts.data.image import stored_size, turned_box
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.validation import check_label, file_bytes

FORM = "[left, top, width, height] in pixels"
FRAME = ("size", "width", "height")  # columns that may state the size of an image
SLACK = 1.0  # pixels that a box may reach out of its image, for rounding
Box = tuple[list[float], int]


def boxes_and_classes(value: Any) -> list[tuple[Any, Any]]:
    """Return box and class of each object, from lists of both, a list of objects, or what JSON has of either."""
    if value is None:
        raise InvalidRecord("missing")
    try:
        value = json.loads(value) if isinstance(value, str) else value
        rows = value if isinstance(value, list) else [
            {"bbox": box, "category": name} for box, name in zip(value["bbox"], value["category"], strict=True)
        ]  # fmt: skip
        return [(row["bbox"], row["category"]) for row in rows]
    except (ValueError, TypeError, KeyError):
        raise InvalidRecord(f"expected a 'bbox' {FORM} and a 'category' of each object") from None


def check_objects(value: Any, names: Sequence[str]) -> list[Box]:
    """Return the boxes of an image's objects, which have some size, and the numbers of their classes."""
    objects = []
    for box, name in boxes_and_classes(value):
        sides = isinstance(box, list) and len(box) == 4 and all(isinstance(side, int | float) for side in box)
        if not sides or not all(map(isfinite, box)) or min(box[2:]) <= 0:
            raise InvalidRecord(f"box {box}, expected {FORM}, of some width and height")
        objects.append(([float(side) for side in box], check_label(name, names)))
    return objects


def check_placed(image: Any, objects: Any, *sizes: Any, names: Sequence[str], frame: Sequence[str]) -> None:
    """Raise InvalidRecord for objects whose boxes are not in their image."""
    (width, height), _ = turn_of(image, stated_size(dict(zip(frame, sizes, strict=True))))
    for (left, top, wide, high), _ in check_objects(objects, names):
        beyond = min(left, top) < -SLACK or left + wide > width + SLACK or top + high > height + SLACK
        if beyond or max(wide, high) < 1:
            what = "reaches out of" if beyond else "is less than a pixel of"
            box = f"[{left:g}, {top:g}, {wide:g}, {high:g}]"
            raise InvalidRecord(f"box {box} {what} the image of {width} x {height} pixels; boxes are {FORM}")


def stated_size(record: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the width and height that the data state of an image, in a column `size`, or in one of each."""
    size = record.get("size") or [record.get("width"), record.get("height")]
    size = json.loads(size) if isinstance(size, str) else size
    return (int(size[0]), int(size[1])) if all(str(side).isdecimal() for side in size) else None


def turn_of(image: Any, stated: tuple[int, int] | None) -> tuple[tuple[int, int], int]:
    """Return the size of the frame that boxes are in, and the EXIF orientation that turns it into the upright one.

    Without a stated size that is the upright image. InvalidRecord where the stated size is that of neither frame, or of
    both though one is turned.
    """
    size, orientation = stored_size(file_bytes(image, "image"))
    upright = size[::-1] if orientation >= 5 else size
    if stated not in (None, size, upright):
        raise InvalidRecord(f"an image of {size[0]} x {size[1]} pixels, but boxes in one of {stated[0]} x {stated[1]}")
    if stated is None or orientation == 1 or size != stated:
        return upright, 1
    if size == upright:
        raise InvalidRecord(f"turned by EXIF orientation {orientation}: boxes may be in either frame; save it upright")
    return size, orientation


def upright_objects(record: Record) -> Record:
    """Return the objects of a record with their boxes in the upright image."""
    turn = turn_of(record["image"], stated_size(record))
    boxes = [(turned_box(box, *turn), name) for box, name in boxes_and_classes(record["objects"])]
    return {"objects": json.dumps([{"bbox": box, "category": name} for box, name in boxes])}
