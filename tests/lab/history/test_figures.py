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


def test_times_gradients_and_layers_are_the_records(drawn: list[tuple[str, list[float], list[float]]]) -> None:
    FIGURES["steps.png"](RECORD, Figure())
    for name, found in RECORD["steps"]["models"].items():
        assert (name, RECORD["steps"]["lengths"], found["seconds"]) in drawn
        assert (name, RECORD["steps"]["lengths"], [middle for _, middle, _ in found["over"]]) in drawn
    del drawn[:]
    FIGURES["gradients.png"](RECORD, Figure())
    assert len(drawn) == 2 * len(RECORD["gradients"]["trained"]) and all(up[0] == 1.0 for _, _, up in drawn)
    del drawn[:]
    FIGURES["activations.png"](RECORD, Figure())
    assert [(name, up) for name, _, up in drawn] == [
        (name, found[what]) for what in ("deviation", "gradient") for name, found in RECORD["activations"].items()
    ]


def test_costs_of_long_texts_are_the_records(drawn: list[tuple[str, list[float], list[float]]]) -> None:
    FIGURES["lengths.png"](RECORD, Figure())
    stacks = RECORD["lengths"]["stacks"]
    assert len(drawn) == 4 * len(stacks)
    for name, curves in stacks.items():
        assert (name, *map(list, zip(*curves["step_seconds"], strict=True))) in drawn
        lengths, values = zip(*curves["step_bytes"], strict=True)
        assert (name, list(lengths), [value / 2**20 for value in values]) in drawn


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
