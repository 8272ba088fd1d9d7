"""Own data in splits: the classes of the whole, the same whatever the order in the file, and no row in two of them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image

from qkv.scripts.data.splits.division import divide_rows, file_sketches, sketch_image
from qkv.scripts.data.text_columns import read_corpus
from recipes import recipe_of


def rows(count: int = 100) -> list[dict[str, str]]:
    """Texts of two classes that take turns."""
    return [{"text": f"sentence {'abcdefghij'[row % 10]} {row * 7919}", "kind": "xy"[row % 2]} for row in range(count)]


def corpus(folder: Path, lines: list[dict[str, str]], **fields: object):
    for name, own in (lines if isinstance(lines, dict) else {"own": lines}).items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, own)))
    where = folder if isinstance(lines, dict) else folder / "own.jsonl"
    return read_corpus(recipe_of(data=str(where), text={"label": "kind"}, **fields))


def test_labels_that_take_turns_are_in_every_split_as_in_a_shuffled_file(tmp_path: Path) -> None:
    found = []
    for order in (rows(), random.Random(0).sample(rows(), 100)):
        found.append(corpus(tmp_path, order, holdout=0.2).report["classes"])
    assert found[0] == found[1]
    assert found[0] == {"train": {"x": 35, "y": 35}, "validation": {"x": 10, "y": 10}, "test": {"x": 5, "y": 5}}


def test_equal_rows_stay_together_and_are_no_leak(tmp_path: Path) -> None:
    own = corpus(tmp_path, rows(40) * 3)
    assert not set(own.texts["train"]) & set(own.texts["test"]) and len(own.texts["test"]) == 12
    assert own.report["leaked"] == {"test": {"equal": 0, "similar": 0}}


def test_rows_of_one_group_stay_together_and_the_seed_decides(tmp_path: Path) -> None:
    lines = [{**row, "writer": f"w{number // 5}"} for number, row in enumerate(rows())]
    writer = {row["text"]: row["writer"] for row in lines}
    by_group = corpus(tmp_path, lines, group="writer")
    held = [{writer[text] for text in own} for own in by_group.texts.values()]
    assert not held[0] & held[1] and "rows of one 'writer' together, split_seed=0" in by_group.report["split"]
    assert corpus(tmp_path, lines, split_seed=1).texts["test"] != corpus(tmp_path, lines).texts["test"]


def test_the_last_rows_are_the_test_where_time_decides(tmp_path: Path) -> None:
    own = corpus(tmp_path, rows(), split="time", test_size=0.2)
    assert own.texts["test"] == [row["text"] for row in rows()[80:]]
    assert own.report["split"] == "test from the training rows, the last ones"


def test_rows_of_two_given_splits_are_counted_and_too_many_refused(tmp_path: Path) -> None:
    train, test = rows(80), [*rows(4), *({**row, "text": row["text"].upper()} for row in rows(6)[4:]), *rows(100)[80:]]
    with pytest.raises(
        ValueError,
        match=r"4 of 26 rows of the test split of .* are in the training split as well, "
        r"more than leaked_records=0.01 allows; the first is row 1 of test, which is row 1 of train",
    ):
        corpus(tmp_path, {"train": train, "test": test})
    own = corpus(tmp_path, {"train": train, "test": test}, leaked_records=1)
    assert own.report["leaked"]["test"]["equal"] == 4 and own.report["leaked"]["test"]["similar"] >= 2
    assert own.report["split"] == "as the data have them"


def test_a_limited_test_keeps_the_classes_of_a_sorted_file(tmp_path: Path) -> None:
    ordered = sorted(rows(), key=lambda row: row["kind"])
    for name, own in {"train": rows(140)[100:], "test": ordered}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, own)))
    recipe = recipe_of(data=str(tmp_path), text={"label": "kind", "evaluated": 10})
    assert read_corpus(recipe).report["classes"]["test"] == {"x": 5, "y": 5}


def test_a_file_saved_once_more_is_the_same_picture(tmp_path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    for name in ("a.png", "b.bmp", "c.jpg"):
        image.save(tmp_path / name)
    tables = {
        name: Dataset.from_list([{"image": {"path": str(tmp_path / own), "bytes": None}}])
        for name, own in {"train": "a.png", "test": "b.bmp", "validation": "c.jpg"}.items()
    }
    division = divide_rows(file_sketches(tables, "image", sketch_image), recipe_of(leaked_records=1))
    assert division.report["leaked"] == {
        "test": {"equal": 1, "similar": 0},
        "validation": {"equal": 0, "similar": 1},
    }
