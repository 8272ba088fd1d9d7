"""Boxes of objects, in the frame of their image, whichever way its EXIF orientation turns it."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.data.image import stored_size, turned_box
from qkv.scripts.data.validation import check_label, file_bytes

FORM = "[left, top, width, height] in pixels"
FRAME = ("size", "width", "height")  # columns that may state the size of an image
SLACK = 1.0  # pixels that a box may reach out of its image, for rounding
Box = tuple[list[float], int]


def boxes_and_classes(value: Any) -> list[tuple[Any, Any]]:
    """Return box and class of each object, from lists of both, a list of objects, or JSON of either."""
    if value is None:
        raise InvalidRecord("missing")
    try:
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, Mapping):
            return list(zip(value["bbox"], value["category"], strict=True))
        return [(row["bbox"], row["category"]) for row in value]
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


def upright(image: Any, objects: Sequence[Box], frame: Mapping[str, Any]) -> list[Box]:
    """Return objects with their boxes in the upright image; InvalidRecord for a box that reaches out of its image.

    Boxes are in the frame whose size the data state, as `size` or as `width` and `height`, else in the upright image.
    InvalidRecord where the stated size is that of neither, or of both though one is turned.
    """
    stated = frame.get("size") or [frame.get("width"), frame.get("height")]
    stated = json.loads(stated) if isinstance(stated, str) else stated
    stated = tuple(map(int, stated)) if all(str(side).isdecimal() for side in stated) else None
    stored, orientation = stored_size(file_bytes(image, "image"))
    turned = stored[::-1] if orientation >= 5 else stored
    width, height = stated or turned
    if stated not in (None, stored, turned):
        raise InvalidRecord(f"an image of {stored[0]} x {stored[1]} pixels, but boxes in one of {width} x {height}")
    is_stored = orientation > 1 and stated == stored
    if is_stored and stored == turned:
        raise InvalidRecord(f"turned by EXIF orientation {orientation}: boxes may be in either frame; save it upright")
    for (left, top, wide, high), _ in objects:
        beyond = min(left, top) < -SLACK or left + wide > width + SLACK or top + high > height + SLACK
        if beyond or max(wide, high) < 1:
            where = "reaches out of" if beyond else "is less than a pixel of"
            box = f"[{left:g}, {top:g}, {wide:g}, {high:g}]"
            raise InvalidRecord(f"box {box} {where} the image of {width} x {height} pixels; boxes are {FORM}")
    return [(turned_box(box, stored, orientation), name) for box, name in objects] if is_stored else list(objects)


def check_placed(image: Any, objects: Any, *sizes: Any, names: Sequence[str], frame: Sequence[str]) -> None:
    """Raise InvalidRecord for objects whose boxes are not in their image."""
    upright(image, check_objects(objects, names), dict(zip(frame, sizes, strict=True)))


def upright_objects(record: Record, names: Sequence[str]) -> Record:
    """Return the objects of a record with their boxes in the upright image."""
    objects = upright(record["image"], check_objects(record["objects"], names), record)
    return {"objects": json.dumps([{"bbox": box, "category": names[number]} for box, number in objects])}
