"""JSON: lists, objects by line, and COCO, whose images lie where people put them."""

import json
from pathlib import Path

import pytest
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.json_files import image_path
from qkv.scripts.data.loading import read

COCO = {
    "images": [{"id": 7, "file_name": "ü 1.png"}, {"id": 3, "file_name": "2.png"}],
    "annotations": [
        {"image_id": 7, "category_id": 2, "bbox": [0, 0, 2, 2]},
        {"image_id": 7, "category_id": 5, "bbox": [1, 1, 1, 1]},
        {"image_id": 7, "category_id": 5, "bbox": [0, 0, 4, 4], "iscrowd": 1},
    ],
    "categories": [{"id": 2, "name": "cat"}, {"id": 5, "name": "dog"}],
}


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '{"a": 1}\n{"a": 2}\n', '\ufeff[{"a": 1},{"a":2}]'])
def test_lists_and_lines_are_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert read(str(path))["a"][:] == [1, 2]


@pytest.mark.parametrize(
    ("content", "mention"),
    [("[]", "no records"), ("", "no records"), ("[1]", "row 1"), ("[{", "JSON"), ('{"data": [], "n": 1}', "data, n"),
     (json.dumps(COCO | {"images": [{"id": 1}]}), "file_name")],
)  # fmt: skip
def test_what_is_no_table_is_said(tmp_path: Path, content: str, mention: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with raises_sentence("x.json", mention):
        read(str(path))


@pytest.mark.parametrize("folder", ["", "images", "../images", "../train2017", "train2017"])
def test_images_of_coco_are_found(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "annotations" / "instances_train2017.json"
    (path.parent / folder).mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(COCO))
    for name in ("ü 1.png", "2.png"):
        Image.new("RGB", (4, 4)).save(path.parent / folder / name)
    first, second = read(str(path))
    assert Path(first["image"]["path"]).samefile(path.parent / folder / "ü 1.png")
    objects = json.loads(first["objects"])
    assert [each["category"] for each in objects] == ["cat", "dog"] and objects[1]["bbox"] == [1, 1, 1, 1]
    assert json.loads(second["objects"]) == []


def test_an_image_that_is_nowhere_is_named_beside_the_file() -> None:
    assert image_path(Path("a/b.json"), "c.png") == Path("a/c.png")
