"""Public reports about pictures and boxes, each tried here on pixels that are known by hand."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.image_data import check_objects, read_images, read_objects
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.validation import check_image
from qkv.scripts.tasks.object_detection import mirror

LOOSE = ["leaked_records=1"]
Change = Callable[[dict[str, Any]], None]


def pixels(path: Path) -> list[Any]:
    """The first row of a picture as training reads it."""
    return np.asarray(check_image(str(path)))[0].tolist()


def noise(path: Path, seed: int, size: tuple[int, int] = (24, 24)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size[::-1], 3)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)).save(path, "PNG")


def png(levels: list[tuple[int, ...]]) -> bytes:
    """A row of a PNG with 16 bits a channel, grey or in colours, written by hand."""
    kind = 2 if len(levels[0]) == 3 else 0
    data = zlib.compress(b"\0" + b"".join(struct.pack(">H", value) for pixel in levels for value in pixel))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", len(levels), 1, 16, kind, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(own)) + name + own + struct.pack(">I", zlib.crc32(name + own)) for name, own in parts
    )


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(png([(0,), (257,), (25_700,), (65_535,)]))
    assert [pixel[0] for pixel in pixels(path)] == [0, 1, 100, 255]
    path.write_bytes(png([(0, 25_700, 65_535), (65_535, 0, 257)]))
    assert pixels(path) == [[0, 100, 255], [255, 0, 1]]


def test_hidden_folders_are_no_classes(tmp_path: Path) -> None:
    for number in range(10):
        noise(tmp_path / "cat" / f"{number}.png", number)
        noise(tmp_path / "dog" / f"{number}.PNG", 10 + number)
    for hidden in (".ipynb_checkpoints/0.png", "cat/.ipynb_checkpoints/0.png", "__MACOSX/cat/._0.png", "cat/._0.png"):
        noise(tmp_path / hidden, 99)
    data = read_images(infer(str(tmp_path), LOOSE)[0])
    assert data.labels == ["cat", "dog"] and len(data.train) + sum(map(len, data.splits.values())) == 20


def test_colours_below_transparency_are_read_and_counted(tmp_path: Path) -> None:
    for number in range(20):
        stored = np.random.default_rng(number).integers(0, 255, (24, 24, 4), dtype=np.uint8)
        stored[:12, :, 3] = 0
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.fromarray(stored).save(path := tmp_path / "ab"[number % 2] / f"{number}.png")
        assert pixels(path) == stored[0, :, :3].tolist()  # as pipelines of transformers read them
    assert list(read_images(infer(str(tmp_path), LOOSE)[0]).read.mended.values()) == [20]


SIZE = (60, 40)
COUNT = 30


def boxes_of(folder: Path, change: Change) -> tuple[list[str], dict[str, list[Any]]]:
    """The classes of changed COCO, and the boxes and classes of each picture by its name."""
    for number in range(COUNT):
        noise(folder / f"{number}.png", number, SIZE)
    images = [{"id": n, "file_name": f"{n}.png", "width": SIZE[0], "height": SIZE[1]} for n in range(COUNT)]
    objects = [{"id": n, "image_id": n, "category_id": 1, "bbox": [4, 5, 15, 10], "iscrowd": 0} for n in range(COUNT)]
    content = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "ant"}]}
    change(content)
    (folder / "annotations.json").write_text(json.dumps(content))
    data = read_objects(infer(str(folder), LOOSE)[0])
    assert data.invalid_records.skipped == []
    read = [row for table in data.tables.values() for row in table]
    found = {Path(row["image"]["path"]).stem: check_objects(row["objects"], data.labels) for row in read}
    assert len(read) == len(found) == COUNT
    return data.labels, {name: [(box, data.labels[label]) for box, label in own] for name, own in found.items()}


def test_classes_are_called_by_their_ids_whatever_these_are(tmp_path: Path) -> None:
    names = {90: "zebra", 0: "bee", 7: "ant"}

    def sparse(content: dict[str, Any]) -> None:
        content["categories"] = [{"id": id_, "name": name} for id_, name in names.items()]
        for each in content["annotations"]:
            each["category_id"] = [*names][each["image_id"] % 3]

    labels, found = boxes_of(tmp_path, sparse)
    assert labels == ["ant", "bee", "zebra"]
    for number in range(COUNT):
        assert found[str(number)] == [([4.0, 5.0, 15.0, 10.0], [*names.values()][number % 3])]


def test_crowds_are_no_objects_and_empty_pictures_stay(tmp_path: Path) -> None:
    def crowded(content: dict[str, Any]) -> None:
        objects = [each for each in content["annotations"] if each["image_id"] % 3]
        crowds = [{**each, "iscrowd": 1, "bbox": [0, 0, 60, 40]} for each in content["annotations"]]
        content["annotations"] = objects + crowds

    _, found = boxes_of(tmp_path, crowded)
    assert {name: len(own) for name, own in found.items()} == {str(n): int(n % 3 > 0) for n in range(COUNT)}


def test_ids_of_joined_files_are_compared(tmp_path: Path) -> None:
    def texts(content: dict[str, Any]) -> None:
        for each in content["annotations"]:
            each["image_id"] = str(each["image_id"])

    assert all(len(own) == 1 for own in boxes_of(tmp_path / "texts", texts)[1].values())
    with raises_sentence("row 1", "the id 0"):
        boxes_of(tmp_path / "twice", lambda content: content["images"][1].update(id=0))


def test_mirrored_boxes_keep_their_object_and_their_order() -> None:
    shown = np.zeros((40, 60, 3), np.uint8)
    shown[5:15, 40:55] = 255
    image, objects = mirror(Image.fromarray(shown), [([40.0, 5.0, 15.0, 10.0], 0)])
    (((left, top, width, height), _),) = objects
    assert (left, top, width, height) == (5.0, 5.0, 15.0, 10.0)
    inside = np.asarray(image)[int(top) : int(top + height), int(left) : int(left + width)]
    assert inside.min() == 255 and int(np.asarray(image).sum()) == int(inside.sum())
    assert mirror(image, objects)[1] == [([40.0, 5.0, 15.0, 10.0], 0)]
