"""Pictures: they are drawn of the record's values, one line for each model."""

import json
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qkv.scripts.lab.history import figures
from qkv.scripts.lab.history.figures import FIGURES, draw

RECORD = json.loads(
    (Path(__file__).resolve().parents[3] / "model_cards" / "history" / "record.json").read_text(encoding="utf-8")
)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[float], list[float]]]:
    lines = []
    plot = Axes.plot

    def spy(self: Axes, across: object, up: object, **options: object) -> object:
        lines.append((options["label"], list(across), list(up)))
        return plot(self, across, up, **options)

    monkeypatch.setattr(Axes, "plot", spy)
    return lines


def test_quality_and_losses_are_the_records(drawn: list[tuple[str, list[float], list[float]]]) -> None:
    FIGURES["quality.png"](RECORD, Figure())
    expected = []
    for name, curve in RECORD["quality"].items():
        expected.append((name, *map(list, zip(*curve, strict=True))))
        expected.append((name, *map(list, zip(*RECORD["training"][name]["curve"], strict=True))))
    assert drawn == expected


def test_each_picture_is_a_file_with_one_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    legends = []
    legend = Figure.legend
    monkeypatch.setattr(figures, "FIGURES", {"quality.png": FIGURES["quality.png"]})
    monkeypatch.setattr(
        Figure, "legend", lambda self, *given, **words: legends.append(given) or legend(self, *given, **words)
    )
    draw(RECORD, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["quality.png"]
    ((handles, labels),) = legends
    assert len(handles) == len(set(labels)) == len(RECORD["quality"]) + 2
