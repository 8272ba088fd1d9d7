"""Read the boxes of objects in images, and check them against the images: two sources about one geometry."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from operator import ne
from typing import Any

from qkv.scripts.data.examples import InvalidRecord, Record
from qkv.scripts.data.image import stored_size, turned_box
from qkv.scripts.data.validation import check_label, check_number, file_bytes

FORM = "[left, top, width, height] in pixels"
FRAME = ("size", "width", "height")  # columns that may state the size of an image
SLACK = 1.0  # pixels that a box may reach out of its image, for rounding
CROWDS, BEYOND = "crowds, which are no objects", "boxes that reach out by a pixel or less, cut at the border"
UNSTATED = "images turned by EXIF, whose boxes are taken to be upright, for no width and height say so"
MENDED = (CROWDS, BEYOND, UNSTATED)
Box = tuple[list[float], int]


def entries_of(value: Any) -> list[tuple[Any, Any, Any]]:
    """Return box, class and whether it is a crowd, from lists of each, a list of objects, or JSON of either."""
    if value is None:
        raise InvalidRecord("missing")
    try:
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, Mapping):
            crowds = value.get("iscrowd") or [0] * len(value["bbox"])
            return list(zip(value["bbox"], value["category"], crowds, strict=True))
        return [(row["bbox"], row["category"], row.get("iscrowd")) for row in value]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidRecord(f"expected a 'bbox' {FORM} and a 'category' of each object") from None


def boxes_and_classes(value: Any) -> list[tuple[Any, Any]]:
    """Return box and class of each object, crowds left out."""
    return [(box, name) for box, name, is_crowd in entries_of(value) if not is_crowd]


def check_objects(value: Any, names: Sequence[str]) -> list[Box]:
    """Return the boxes of an image's objects, which have some size, and the numbers of their classes."""
    objects = []
    for box, name in boxes_and_classes(value):
        sides = isinstance(box, list) and len(box) == 4 and all(isinstance(side, int | float) for side in box)
        if not sides or not all(map(isfinite, box)) or min(box[2:]) <= 0:
            raise InvalidRecord(f"box {box}, expected {FORM}, of some width and height")
        objects.append(([float(side) for side in box], check_label(name, names)))
    return objects


def stated_size(frame: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the width and height that the data state; None where they do not."""
    size = frame.get("size")
    size = json.loads(size) if isinstance(size, str) and size.startswith("[") else size
    sides = size if isinstance(size, list) and len(size) == 2 else [frame.get("width"), frame.get("height")]
    if all(side in (None, "") for side in sides):
        return None
    return check_number(sides[0]), check_number(sides[1])


def likely_form(box: Sequence[float], width: float, height: float) -> str:
    """Return the form in which a box fits in its image."""
    left, top, right, bottom = box
    forms = {
        "parts of its sides": max(box) <= 1,
        "[left, top, right, bottom]": left < right <= width + SLACK and top < bottom <= height + SLACK,
    }
    return next((f"; it fits as {form}" for form, fits in forms.items() if min(box) >= 0 and fits), "")


def upright(image: Any, objects: Sequence[Box], frame: Mapping[str, Any]) -> tuple[list[Box], dict[str, int]]:
    """Return objects with boxes in the upright image, and counts of the mended ones.

    The frame is the one whose size the data state, else that of the upright image. InvalidRecord for a size of neither,
    or of both though one is turned.
    """
    stated, (stored, orientation) = stated_size(frame), stored_size(file_bytes(image, "image"))
    turned = stored[::-1] if orientation >= 5 else stored
    if stated not in (None, stored, turned):
        size = "{:g} x {:g}".format(*stated)
        raise InvalidRecord(f"an image of {stored[0]} x {stored[1]} pixels, but boxes in one of {size}")
    is_stored = orientation > 1 and stated == stored
    if is_stored and stored == turned:
        raise InvalidRecord(f"turned by EXIF orientation {orientation}: boxes may be in either frame; save it upright")
    is_unstated = orientation > 1 and stated is None and bool(objects)
    hint = "; EXIF turns the image, so state width and height" if is_unstated else ""
    placed = [(inside(box, stated or turned, hint), name) for box, name in objects]
    mended = {BEYOND: sum(map(ne, placed, objects)), UNSTATED: int(is_unstated)}
    if is_stored:
        placed = [(turned_box(box, stored, orientation), name) for box, name in placed]
    return placed, mended


def inside(box: list[float], size: Sequence[float], hint: str) -> list[float]:
    """Return a box, cut at the border of its image if it reaches out a little; InvalidRecord if more, or in parts."""
    (left, top, wide, high), (width, height) = box, size
    beyond = max(-left, -top, left + wide - width, top + high - height)
    if beyond > SLACK or max(box) <= 1:
        where = f"reaches out of {width:g} x {height:g} pixels" if beyond > SLACK else "is no pixel large"
        found = f"box [{', '.join(f'{side:g}' for side in box)}] {where}"
        raise InvalidRecord(f"{found}, expected {FORM}{likely_form(box, width, height)}{hint}")
    if beyond < 1e-6:
        return box
    right, bottom, left, top = min(left + wide, width), min(top + high, height), max(left, 0.0), max(top, 0.0)
    return [left, top, right - left, bottom - top]


def check_placed(image: Any, objects: Any, *sizes: Any, names: Sequence[str], frame: Sequence[str]) -> None:
    """Raise InvalidRecord for objects whose boxes are not in their image."""
    upright(image, check_objects(objects, names), dict(zip(frame, sizes, strict=True)))


def upright_objects(record: Record, names: Sequence[str]) -> Record:
    """Return the objects of a record with their boxes in the upright image, and counts of the mended ones."""
    objects, mended = upright(record["image"], check_objects(record["objects"], names), record)
    crowds = len(entries_of(record["objects"])) - len(objects)
    rows = [{"bbox": box, "category": names[number]} for box, number in objects]
    return {"objects": json.dumps(rows), CROWDS: crowds, **mended}
