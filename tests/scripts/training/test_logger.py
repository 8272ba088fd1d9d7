"""Logs of a training: metrics.jsonl, trackers, the bar on the screen and the curve."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from matplotlib.axes import Axes

from qkv.scripts.common import extras
from qkv.scripts.common.extras import MissingExtraError
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training import trackers
from qkv.scripts.training.logger import MetricLogger, draw_curve
from qkv.scripts.training.loop import Step
from qkv.scripts.training.record import read_metrics
from recipes import recipe_of

RECIPE = recipe_of(max_steps=5, log_every=2, batch_size=3)


def logger(folder: Path, *, is_main: bool = True, **fields: object) -> MetricLogger:
    return MetricLogger(folder, changed(RECIPE, **fields), MagicMock(is_main_process=is_main))


def step(number: int, loss: float) -> Step:
    return Step(number, 0.1 * number, torch.tensor(loss), torch.tensor(2.0), torch.tensor(7))


def test_losses_are_means_since_the_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = logger(tmp_path)
    with found.start(0):
        for number in range(1, 6):
            found.log_step(step(number, float(number)))
        found.log_evaluation(5, {"test": {"loss": 0.5, "accuracy": 0.9}}, 3)
    *lines, last = read_metrics(tmp_path)
    assert [(line["step"], line["loss"]) for line in lines] == [(2, 1.5), (4, 3.5), (5, 5.0)]
    assert lines[0] == {"step": 2, "loss": 1.5, "lr": 0.2, "grad_norm": 2.0, "samples": 6, "tokens": 14}
    assert last == {"step": 3, "split": "test", "loss": 0.5, "accuracy": 0.9}, "the step of the weights"
    assert [call.kwargs["step"] for call in found.accelerator.log.call_args_list] == [2, 4, 5, 5], "trackers go forward"
    assert found.accelerator.log.call_args.args[0] == {"test/loss": 0.5, "test/accuracy": 0.9}
    assert found.accelerator.log.call_args_list[0].args[0]["train/loss"] == 1.5
    assert "5/5" in capsys.readouterr().err
    other = logger(tmp_path)
    other.load_state_dict(json.loads(json.dumps(found.state_dict())))
    assert (other.losses, other.tokens, other.shown) == (found.losses, 35, found.shown)


def test_only_the_main_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    found = logger(tmp_path, is_main=False, log_every=1, tracker="wandb")
    with found.start(0):
        found.log_step(step(1, 1.0))
        found.log_evaluation(1, {"test": {"loss": 0.5}})
    assert not list(tmp_path.iterdir()) and not found.accelerator.method_calls and capsys.readouterr().err == ""


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_loss_that_is_not_finite_stops_the_training(tmp_path: Path, loss: float) -> None:
    with pytest.raises(FloatingPointError, match="step 1.*learning_rate"):
        logger(tmp_path).log_step(step(1, loss))


def on_gpu(number: int, loss: float) -> tuple[Step, MagicMock]:
    value = MagicMock()
    value.device.type, value.item.return_value = "cuda", loss
    return Step(number, 0.1, value, torch.tensor(2.0), torch.tensor(7)), value.item


def test_losses_on_a_gpu_are_read_when_they_are_logged(tmp_path: Path) -> None:
    found = logger(tmp_path, log_every=3)
    steps, reads = zip(*(on_gpu(number, float(number)) for number in range(1, 5)), strict=True)
    counts = []
    for each in steps:
        found.log_step(each)
        counts.append([read.call_count for read in reads])
    assert counts == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]], "the first is shown at once"
    assert [line["loss"] for line in read_metrics(tmp_path)] == [2.0]
    assert found.state_dict()["losses"] == [4.0], "a checkpoint has all"


def test_loss_on_a_gpu_that_is_not_finite_leaves_no_checkpoint(tmp_path: Path) -> None:
    found = logger(tmp_path, log_every=3)
    for each in (1.0, float("nan")):
        found.log_step(on_gpu(int(each == 1.0) + 1, each)[0])
    with pytest.raises(FloatingPointError):
        found.state_dict()


def test_curve_has_a_panel_for_each_metric_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, colours, marks = [], set(), []

    def plot(self: Axes, *values: object, label: str, color: str, **style: object) -> None:
        drawn.append((label, *values))
        colours.add((label, color))

    monkeypatch.setattr(Axes, "plot", plot)
    monkeypatch.setattr(Axes, "axvline", lambda self, place, **style: marks.append(place))
    monkeypatch.setattr(Axes, "legend", lambda self: None)
    lines = [
        {"step": 1, "loss": 2.0, "lr": 0.1},
        {"step": 2, "loss": 1.0, "lr": 0.1},
        {"step": 1, "split": "validation", "loss": 1.5, "accuracy": 0.4},
        {"step": 2, "split": "validation", "loss": 1.2, "accuracy": 0.5},
        {"step": 2, "split": "test", "loss": 1.3, "accuracy": 0.6, "f1": 0.6},
    ]
    draw_curve(lines, tmp_path / "curve.png", 1)
    both = (1, 2)
    assert drawn == [
        ("train", both, (2.0, 1.0)), ("validation", both, (1.5, 1.2)), ("test", (2,), (1.3,)),
        ("validation", both, (0.4, 0.5)), ("test", (2,), (0.6,)),
    ]  # fmt: skip
    assert colours == {("train", "C0"), ("validation", "C1"), ("test", "C2")} and marks == [1, 1]
    assert (tmp_path / "curve.png").stat().st_size


@pytest.mark.parametrize(("last", "scale"), [(2.0, "linear"), (0.2, "log"), (-0.2, "linear")])
def test_losses_over_decades_have_a_logarithmic_axis(
    last: float, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []
    monkeypatch.setattr(Axes, "set", lambda self, **options: found.append(options["yscale"]))
    draw_curve([{"step": step, "loss": loss} for step, loss in enumerate((4.0, last))], tmp_path / "curve.png")
    assert found == [scale]


@pytest.mark.parametrize("done", [0, 8])
def test_trackers_get_plain_settings_without_folders(done: int, tmp_path: Path) -> None:
    (tmp_path / "own.csv").touch()
    recipe = recipe_of(
        tracker=",".join(trackers.TRACKERS), data=str(tmp_path / "own.csv"), out=str(tmp_path / "a"),
        model={"encoder": {"layers": 2}, "act": "relu"},
    )  # fmt: skip
    process = MagicMock(is_main_process=True)
    trackers.start_trackers(process, recipe, tmp_path / "first", done)
    project, settings, options = process.init_trackers.call_args.args
    assert project == "tiny" and process.project_configuration.logging_dir == str(tmp_path / "first")
    names = {"trackio": {"name": "first"}, "wandb": {"name": "first"}, "mlflow": {"run_name": "first"}}
    assert options == {"tensorboard": {"purge_step": 9} if done else {}, **names}
    assert all(isinstance(value, str | int | float) for value in settings.values())
    assert str(tmp_path) not in str(settings) and "init" not in settings
    expected = {"data": "own.csv", "out": "a", "model.act": "relu", "model.encoder": '{"layers": 2}'}
    assert {**expected, "text.vocab_size": 2048, "learning_rate": 1e-3}.items() <= settings.items()


@pytest.mark.parametrize("name", trackers.TRACKERS)
def test_missing_library_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf"qkv\[{name}\]"):
        trackers.tracker_names(recipe_of(tracker=name))
