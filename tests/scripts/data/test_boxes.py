"""Boxes and the images that they are in: two sources about one geometry, which are compared, whatever the file."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.data.boxes import BEYOND, CROWDS, UNSTATED, check_objects, inside
from qkv.scripts.data.examples import InvalidRecord
from qkv.scripts.data.image_data import object_classes, read_objects
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read

BOX = [40, 5, 15, 10]
COUNT = 30


def photo(path: Path, number: int, orientation: int = 1) -> None:
    """A photograph of 60 x 40 stored pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.full((40, 60, 3), 200 + number, np.uint8)).save(path, exif=exif)


def coco(folder: Path, change: Callable[[dict[str, Any]], None], orientation: int = 1) -> Path:
    """Photographs with a box each, as COCO has them, with a change."""
    for n in range(COUNT):
        photo(folder / f"{n}.png", n, orientation)
    content: dict[str, Any] = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 60, "height": 40} for n in range(COUNT)],
        "annotations": [{"id": n, "image_id": n, "category_id": 90, "bbox": BOX, "iscrowd": 0} for n in range(COUNT)],
        "categories": [{"id": 90, "name": "red"}, {"id": 7, "name": "blue"}],
    }
    change(content)
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def objects_of(where: Any, test_size: float = 0.1) -> Any:
    recipe = infer(str(where), ["leaked_records=1", "bad_records=0.2"])[0]
    return read_objects(replace(recipe, data=replace(recipe.data, test_size=test_size)))


def changed(part: str, place: int | None = None, **fields: Any) -> Callable[[dict[str, Any]], None]:
    """Change the fields of an entry of COCO, or of all."""

    def change(content: dict[str, Any]) -> None:
        for each in content[part] if place is None else [content[part][place]]:
            each |= {name: make(each) if callable(make) else make for name, make in fields.items()}

    return change


@pytest.mark.costly(8)
@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (changed("annotations", 3, category_id=1), [4]),
        (changed("annotations", 3, bbox=None), [4]),
        (changed("annotations", 3, bbox=[]), [4]),
        (changed("annotations", 3, bbox=[40, 5, 0, 10]), [4]),
        (changed("annotations", 3, bbox=[40, 5, float("nan"), 10]), [4]),
        (changed("annotations", 3, bbox=[50, 5, -10, 10]), [4]),
        (changed("annotations", 3, image_id=99), [31]),
        (changed("images", 3, id=2), [3, 4, 31]),
        (changed("images", 3, file_name="2.png"), [3, 4]),
        (changed("images", 3, file_name="gone.png"), [4]),
        (changed("images", 3, width=50), [4]),
        (changed("images", 3, width=None), [4]),
        (changed("annotations", image_id=lambda each: str(each["image_id"]), category_id="90"), []),
        (changed("images", width=60.0, height="40"), []),
        (changed("images", file_name=lambda each: f"sub\\..\\{each['file_name']}"), []),
    ],
)
def test_each_entry_of_coco_is_right_or_a_bad_record(change: Any, rows: list[int], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    data = objects_of(coco(tmp_path, change))
    assert [line["row"] for line in data.invalid_records.skipped] == rows
    assert sum(map(len, data.tables.values())) == COUNT - sum(row <= COUNT for row in rows) and data.labels == ["red"]


@pytest.mark.parametrize("change", [{"id": 90}, {"name": "red"}])
def test_categories_of_one_id_or_name_are_an_error(change: dict[str, Any], tmp_path: Path) -> None:
    with raises_sentence("2 categories", "annotations.json"):
        read(str(coco(tmp_path, changed("categories", 1, **change))))


def test_crowds_cuts_and_images_without_objects_are_counted(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["annotations"][3] |= {"iscrowd": 1}
        content["annotations"][4] |= {"bbox": [40.4, 5, 20, 10]}
        del content["annotations"][5]

    data = objects_of(coco(tmp_path, change), 1.0)
    assert data.read.left_out[CROWDS] == 1 and data.read.mended == {BEYOND: 1}
    assert data.report["without_objects"] == {"test": 2}
    boxes = [check_objects(each, data.labels) for each in data.tables["test"]["objects"]]
    assert boxes[3] == boxes[5] == [] and boxes[4][0][0] == pytest.approx([40.4, 5, 19.6, 10])
    assert data.read.files == {".json": 1, ".png": COUNT}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_the_frame_is_the_one_that_any_table_states(form: str, tmp_path: Path) -> None:
    rows = []
    for n in range(COUNT):
        photo(tmp_path / f"{n}.png", n, orientation=6)
        objects = [] if n < 12 else [{"bbox": BOX, "category": "red"}]
        rows.append({"image": f"{n}.png", "objects": json.dumps(objects) if form == "csv" else objects})
    sizes = {"width": 60.0, "height": 40.0}
    data = objects_of(write_rows(tmp_path / f"x.{form}", [row | sizes for row in rows]), 1.0)
    assert check_objects(data.tables["test"]["objects"][20], ["red"]) == [([25, 40, 10, 15], 0)]
    with raises_sentence("EXIF", "width and height"):
        objects_of(write_rows(tmp_path / f"x.{form}", rows))
    upright = [
        row | {"objects": str(row["objects"]).replace("40, 5, 15, 10", "5, 40, 15, 10").replace("'", '"')}
        for row in rows
    ]
    data = objects_of(write_rows(tmp_path / f"x.{form}", upright))
    assert data.read.mended[UNSTATED] == 18


@pytest.mark.parametrize(
    ("box", "form"),
    [
        ([40, 5, 55, 15], "[left, top, right, bottom]"),
        ([0.7, 0.25, 0.25, 0.25], "parts of its sides"),
        ([0, 0, 1, 1], "parts of its sides"),
        ([-9, 5, 15, 10], "[left, top, width, height]"),
    ],
)
def test_a_box_that_does_not_fit_names_its_likely_form(box: list[float], form: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        inside(box, (60, 40), "")
    assert form in str(caught.value) and f"{box[0]:g}, {box[1]:g}" in str(caught.value)
    assert inside([0, 0, 60, 40], (60, 40), "") == [0, 0, 60, 40]


def test_objects_without_boxes_are_no_captions(tmp_path: Path) -> None:
    for n in range(COUNT):
        photo(tmp_path / f"{n}.png", n)
    rows = [{"image": f"{n}.png", "objects": {"boxes": [BOX], "labels": [n]}} for n in range(COUNT)]
    with raises_sentence("objects", "a caption or boxes"):
        infer(str(write_rows(tmp_path / "x.jsonl", rows)))


def test_numbered_classes_are_in_their_order(tmp_path: Path) -> None:
    recipe = infer(str(coco(tmp_path, lambda content: None)))[0]
    objects = [json.dumps([{"bbox": BOX, "category": name}]) for name in ("10", "2", "1")]
    assert object_classes(Dataset.from_dict({"objects": objects}), recipe) == ["1", "2", "10"]
