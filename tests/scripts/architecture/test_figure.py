"""The figure is well-formed, shows every box, and keeps everything within its frame."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from qkv.configuration import presets
from qkv.scripts.architecture.figure import check_format, draw, svg
from qkv.scripts.architecture.towers import Box, Layers, Tower
from qkv.scripts.planning.planned_model import find

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_drawn_within_the_frame(name: str, tmp_path: Path) -> None:
    draw(find(name, [], None), 123, tmp_path / "model.svg")
    root = ET.fromstring((tmp_path / "model.svg").read_text())
    _, _, width, height = map(float, root.get("viewBox", "").split())
    boxes = [
        {key: float(each.get(key, 0)) for key in ("x", "y", "width", "height")} for each in root.iter(f"{SPACE}rect")
    ]
    assert all(0 <= box["x"] and box["x"] + box["width"] <= width for box in boxes)
    assert all(0 <= box["y"] and box["y"] + box["height"] <= height for box in boxes)
    texts = [text.text for text in root.iter(f"{SPACE}text")]
    assert texts[0].startswith(f"{name}: Qkv") and texts[0].endswith(", 123 parameters")
    assert [path.name for path in tmp_path.iterdir()] == ["model.svg"]


def solid(root: ET.Element) -> list[tuple[float, float, float, float]]:
    """The filled boxes: left, top, right, bottom."""
    found = [each for each in root.iter(f"{SPACE}rect") if each.get("rx") == "6"]
    sizes = [[float(each.get(key, 0)) for key in ("x", "y", "width", "height")] for each in found]
    return [(x, y, x + width, y + height) for x, y, width, height in sizes]


@pytest.mark.parametrize("name", ["t5_small", "detr_r50", "bert_base", "rnnsearch_50"])
def test_boxes_do_not_lie_on_each_other(name: str, tmp_path: Path) -> None:
    draw(find(name, [], None), 1, tmp_path / "model.svg")
    boxes = solid(ET.fromstring((tmp_path / "model.svg").read_text()))
    clashes = [
        (one, other)
        for index, one in enumerate(boxes)
        for other in boxes[index + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]
    assert len(boxes) > 5 and clashes == []


def test_texts_are_escaped_and_branches_have_a_sum_each() -> None:
    box = Box("mlp", "a < b & c", "x" * 99)
    drawn = svg("<title>", [Tower("t", [box, Layers(3, [[box], [box]], after=Box("norm", "N"))])])
    root = ET.fromstring(drawn)
    assert [text.text for text in root.iter(f"{SPACE}text")].count("a < b & c") == 3
    assert len(list(root.iter(f"{SPACE}circle"))) == 2 and "x3" in drawn and "textLength" in drawn
    assert len(re.findall(r">N</text>", drawn)) == 2


def test_a_tower_is_joined_with_the_one_that_reads_it() -> None:
    first = Tower("a", [Box("input", "one")])
    reads = Tower("b", [Box("input", "two"), Box("attention", "three", memory=True)])
    joined, contrasted = svg("t", [first, reads]), svg("t", [first, Tower("b", [Box("head", "both")])])
    assert joined.count('class="a" marker-end') == 2 and contrasted.count('class="a" marker-end') == 1


def test_another_format_is_refused() -> None:
    check_format(Path("a.SVG"))
    with pytest.raises(ValueError, match=r"--out=a.png must end in .svg"):
        check_format(Path("a.png"))
