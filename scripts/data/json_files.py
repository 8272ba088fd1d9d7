"""JSON: a list of records, an object in each line, or the images, boxes and classes of COCO."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from qkv.scripts.data.encoding import open_bytes
from qkv.scripts.data.examples import Record
from qkv.scripts.data.pieces import InvalidRecord, Piece, Row, attempt, lines

COCO = ("images", "annotations", "categories")


def parse_json(line: bytes, piece: Piece) -> Any:
    """Parse JSON; InvalidRecord where there is none."""
    try:
        return json.loads(piece.decode(line))
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {getattr(error, 'msg', error)}") from None


def check_object(value: Any) -> Record:
    """Return a record; InvalidRecord for a value that is none."""
    if not isinstance(value, dict):
        raise InvalidRecord(f"a JSON {type(value).__name__}, not an object")
    return value


def read_jsonl(piece: Piece) -> Iterator[Row]:
    """Read an object from each line; blank lines are no records."""
    for number, line in lines(piece):
        if line.strip():
            yield number, attempt(lambda line=line: check_object(parse_json(line, piece)))  # type: ignore[misc]


def read_json(piece: Piece) -> Iterator[Row]:
    """Read a list of records, COCO, or, as many programs write, an object in each line; rows are counted from 1."""
    with open_bytes(piece.path, piece.encoding) as file:
        content = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        whole = parse_json(content, piece)
    except InvalidRecord as error:
        if content.lstrip().startswith(b"{"):
            yield from read_jsonl(piece)
        elif content.strip():
            yield 1, error
        return
    if isinstance(whole, list):
        yield from ((row, attempt(partial(check_object, value))) for row, value in enumerate(whole, start=1))
    elif isinstance(whole, dict) and any(isinstance(value, list | dict) for value in whole.values()):
        yield from coco_records(whole, Path(piece.path))
    else:
        yield from read_jsonl(piece)


def coco_records(content: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Yield each image with its objects, as `image` and `objects`; crowds are no objects.

    Source: Lin et al. 2014, Microsoft COCO, https://arxiv.org/abs/1405.0312, https://cocodataset.org/#format-data
    """
    if not all(isinstance(content.get(name), list) for name in COCO):
        there = ", ".join(map(str, list(content)[:8]))
        yield 1, InvalidRecord(f"one JSON object with {there}; expected a list of records, or COCO's {', '.join(COCO)}")
        return
    try:
        names = {each["id"]: each["name"] for each in content["categories"]}
        objects: defaultdict[Any, list[Record]] = defaultdict(list)
        for each in content["annotations"]:
            if not each.get("iscrowd"):
                name = names.get(each["category_id"], each["category_id"])
                objects[each["image_id"]].append({"bbox": each["bbox"], "category": name})
        images = [(each["file_name"], each["id"]) for each in content["images"]]
    except (KeyError, TypeError, AttributeError) as error:
        yield 1, InvalidRecord(f"not COCO: an entry without {error}")
        return
    for row, (name, number) in enumerate(images, start=1):
        yield row, {"image": str(image_path(path, name)), "objects": objects[number]}


def image_path(path: Path, name: str) -> Path:
    """Return where the image of a COCO file lies: beside the file, or in a folder beside it or beside its folder."""
    word = path.stem.rpartition("_")[2]  # instances_train2017.json is about the images in train2017
    above = (path.parent, path.parent.parent)
    places = [folder / inner / name for folder in above for inner in ("", "images", word, f"images/{word}")]
    return next((place for place in places if place.is_file()), places[0])
