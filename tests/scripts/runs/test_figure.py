"""The figure of several runs has a panel for each metric, and a line for each run."""

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from PIL import Image

from qkv.scripts.runs.figure import check_format, draw, panels_of, series
from qkv.scripts.runs.reading import Run


def logged(folder: str, *lines: dict[str, object]) -> Run:
    run = Run(Path(folder), None)
    run.lines = list(lines)
    return run


ONE = logged(
    "a",
    {"step": 1, "loss": 2.0},
    {"step": 1, "split": "validation", "loss": 1.5, "wer": 0.5},
    {"step": 2, "loss": 1.0},
    {"step": 2, "split": "test", "loss": 1.0, "wer": 0.1},
)
OTHER = logged("b", {"step": 4, "loss": 0.5}, {"step": 4, "split": "validation", "accuracy": 0.5})


def test_panels_are_the_training_and_what_was_evaluated_meanwhile() -> None:
    assert panels_of([ONE, OTHER]) == [
        ("train", "loss"),
        ("validation", "loss"),
        ("validation", "accuracy"),
        ("validation", "wer"),
    ]
    assert series(ONE, "train", "loss") == ([1, 2], [2.0, 1.0]) and series(OTHER, "validation", "loss") == ([], [])


@pytest.mark.parametrize(("name", "begins"), [("all.svg", b"<?xml"), ("all.png", b"\x89PNG"), ("all.pdf", b"%PDF")])
def test_every_run_has_a_line_in_its_colour(
    name: str, begins: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, object, list[int]]] = []
    plot = Axes.plot

    def spy(self: Axes, steps: list[int], values: list[float], **options: object) -> object:
        drawn.append((options["label"], options["color"], steps))
        return plot(self, steps, values, **options)

    monkeypatch.setattr(Axes, "plot", spy)
    draw([ONE, OTHER], tmp_path / name)
    assert [(label, steps) for label, _, steps in drawn[:2]] == [("a", [1, 2]), ("b", [4])]
    assert len(drawn) == 8 and len({(label, colour) for label, colour, _ in drawn}) == 2
    assert (tmp_path / name).read_bytes().startswith(begins) and [path.name for path in tmp_path.iterdir()] == [name]


def test_many_runs_have_colours_of_their_own(tmp_path: Path) -> None:
    draw([logged(str(number), {"step": 1, "loss": 1.0}) for number in range(30)], tmp_path / "many.png")
    with Image.open(tmp_path / "many.png") as picture:
        assert picture.height > 1000, "there is room for the legend"


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--out=a.txt must end in one of .svg, .png, .pdf"):
        check_format(Path("a.txt"))
