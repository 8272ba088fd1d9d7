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


def test_times_layers_and_costs_are_the_records(drawn: list[tuple[str, list[float], list[float]]]) -> None:
    for name in ("steps.png", "activations.png", "lengths.png"):
        FIGURES[name](RECORD, Figure())
    steps, layers, stacks = RECORD["steps"], RECORD["activations"].items(), RECORD["lengths"]["stacks"].items()
    for name, own in steps["models"].items():
        for times in (own["seconds"], [middle for _, middle, _ in own["over"]]):
            assert drawn.pop(0) == (name, steps["lengths"], times)
    for name, values in [(name, own[what]) for what in ("deviation", "gradient") for name, own in layers]:
        assert drawn.pop(0) == (name, list(range(len(values))), values)
    for unit, divisor in {"seconds": 1, "bytes": 2**20}.items():
        for name, curve in [(name, own[f"{what}_{unit}"]) for name, own in stacks for what in ("step", "forward")]:
            label, lengths, values = drawn.pop(0)
            points = zip(lengths, (value * divisor for value in values), strict=True)
            assert label in (name, "") and [*map(list, points)] == curve
    assert drawn == []


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
