"""Pictures: they are drawn of the values given, in the places promised."""

import io
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from PIL import Image

from fake_clock import FakeClock
from qkv.scripts.tasks.object_detection import draw_objects
from qkv.scripts.training import plots
from qkv.scripts.training.plots import SHARE, SHORTEST, LiveCurve, draw_curve


def test_the_curve_has_a_panel_for_each_metric_that_was_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    plot = Axes.plot

    def spy(self: Axes, *values: object, **options: object) -> object:
        drawn.append((options["label"], *values))
        return plot(self, *values, **options)

    monkeypatch.setattr(Axes, "plot", spy)
    lines = [
        {"step": 1, "loss": 2.0, "lr": 0.1},
        {"step": 2, "loss": 1.0, "lr": 0.1},
        {"step": 1, "split": "validation", "loss": 1.5, "accuracy": 0.4},
        {"step": 2, "split": "validation", "loss": 1.2, "accuracy": 0.5},
        {"step": 2, "split": "test", "loss": 1.3, "accuracy": 0.6, "f1": 0.6},
    ]
    draw_curve(lines, tmp_path / "curve.png")
    assert drawn == [
        ("train", [1, 2], [2.0, 1.0]),
        ("test", [2], [1.3]),
        ("validation", [1, 2], [1.5, 1.2]),
        ("test", [2], [0.6]),
        ("validation", [1, 2], [0.4, 0.5]),
    ]
    width, height = Image.open(tmp_path / "curve.png").size
    assert width > 2 * height  # two panels side by side


def test_a_live_curve_takes_its_share_of_the_time_and_appears_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, drawn = FakeClock(), []

    def draw(lines: list, content: io.BytesIO) -> None:
        clock.now += 2.0  # what a drawing takes
        drawn.append(clock.now)
        content.write(b"picture")
        assert not (tmp_path / "curve.png").exists() or (tmp_path / "curve.png").read_bytes() == b"picture"

    monkeypatch.setattr(plots, "draw_curve", draw)
    curve = LiveCurve(tmp_path / "curve.png", list, clock)
    while clock.now < 1000:
        clock.now += 1.0
        curve.update()
    assert drawn[0] == SHORTEST + 2.0 and [path.name for path in tmp_path.iterdir()] == ["curve.png"]
    gaps = [later - earlier for earlier, later in zip(drawn, drawn[1:], strict=False)]
    assert len(gaps) == 4 and all(2.0 / SHARE <= gap <= 2.0 / SHARE + 3.0 for gap in gaps)


def test_boxes_are_drawn_for_what_is_there_and_what_is_found_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(
        Axes, "add_patch", lambda self, patch: drawn.append((patch.get_bbox().extents.tolist(), patch.get_linestyle()))
    )
    found = {"boxes": [[1.0, 2.0, 3.0, 5.0], [0.0, 0.0, 1.0, 1.0]], "labels": [1, 0], "scores": [0.9, 0.4]}
    there = {"boxes": [[1.0, 2.0, 3.0, 4.0]], "labels": [1]}
    draw_objects([Image.new("RGB", (8, 8))], [(found, there)], ["a", "b"], tmp_path / "objects.png")
    assert drawn == [([1.0, 2.0, 3.0, 4.0], "--"), ([1.0, 2.0, 3.0, 5.0], "solid")]
    assert Image.open(tmp_path / "objects.png").width > 1000
