"""Logs of a training: metrics.jsonl, trackers, the progress on the screen and the curve."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from PIL import Image

from fake_clock import FakeClock
from qkv.scripts.common import extras
from qkv.scripts.common.extras import MissingExtraError
from qkv.scripts.common.run_folder import read_metrics
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training import trackers
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Step
from qkv.scripts.training.plots import draw_curve
from qkv.scripts.training.progress import LONGEST, SHORTEST, ProgressBar
from qkv.scripts.training.trackers import TRACKERS, check_trackers, start_trackers
from recipes import recipe_of

RECIPE = recipe_of(max_steps=5, log_every=2, batch_size=3)


def logger(folder: Path, *, is_main: bool = True, **fields: object) -> MetricLogger:
    return MetricLogger(folder, changed(RECIPE, **fields), MagicMock(is_main_process=is_main))


def step(number: int, loss: float) -> Step:
    return Step(number, 0.1 * number, torch.tensor(loss), torch.tensor(2.0), torch.tensor(7))


def test_losses_are_means_since_the_last_line(tmp_path: Path) -> None:
    found = logger(tmp_path)
    for number in range(1, 6):
        found.log_step(step(number, float(number)))
    found.log_evaluation(5, {"test": {"loss": 0.5, "accuracy": 0.9}})
    *lines, last = read_metrics(tmp_path)
    assert [(line["step"], line["loss"]) for line in lines] == [(2, 1.5), (4, 3.5), (5, 5.0)]
    assert lines[0] == {"step": 2, "loss": 1.5, "lr": 0.2, "grad_norm": 2.0, "samples": 6, "tokens": 14}
    assert last == {"step": 5, "split": "test", "loss": 0.5, "accuracy": 0.9}
    assert found.accelerator.log.call_args.args[0] == {"test/loss": 0.5, "test/accuracy": 0.9}
    assert found.accelerator.log.call_args_list[0].args[0]["train/loss"] == 1.5


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    found = logger(tmp_path, is_main=False, log_every=1)
    found.log_step(step(1, 1.0))
    found.log_evaluation(1, {"test": {"loss": 0.5}})
    assert not list(tmp_path.iterdir()) and not found.accelerator.log.called


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_loss_that_is_not_finite_stops_the_training(tmp_path: Path, loss: float) -> None:
    with pytest.raises(FloatingPointError, match="step 1.*learning_rate"):
        logger(tmp_path).log_step(step(1, loss))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 100), st.integers(1, 3000), st.integers(0, 50))
def test_lines_in_a_file_are_few_and_never_long_apart(seconds: float, total: int, first: int) -> None:
    clock, out = FakeClock(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", out)
        patch.setattr(ProgressBar, "clock", clock)
        bar, times = ProgressBar("digits", total + first, first), []
        for number in range(first + 1, first + total + 1):
            clock.now += seconds
            before = len(out.getvalue())
            bar.update(number, "loss 1.0")
            times += [clock.now] if len(out.getvalue()) > before else []
        bar.update(number, "loss 1.0")
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert times[0] == pytest.approx(seconds) and times[-1] == clock.now
    assert all(gap >= SHORTEST - 1e-6 for gap in gaps[:-1]) and all(gap <= LONGEST + seconds + 1e-6 for gap in gaps)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(times) and f"{total + first} of {total + first}, loss 1.0" in lines[-1]


def test_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", out)
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        ProgressBar("digits", 4).update(4, "loss 0.5")
    assert out.getvalue() == ""
    bar = ProgressBar("digits", 4, 2)
    bar.update(4, "loss 0.5")
    bar.close()
    assert "digits: 100%" in out.getvalue() and "4/4" in out.getvalue() and "loss 0.5" in out.getvalue()


def test_curve_has_a_panel_for_each_metric_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, plot = [], Axes.plot

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
    expected = {"train": [2.0, 1.0], "test": [1.3], "validation": [1.5, 1.2]}
    assert drawn == [
        *((name, [2] if name == "test" else [1, 2], values) for name, values in expected.items()),
        ("test", [2], [0.6]),
        ("validation", [1, 2], [0.4, 0.5]),
    ]
    width, height = Image.open(tmp_path / "curve.png").size
    assert width > 2 * height  # two panels side by side


# Trackers -------------------------------------------------------------------------------------------------------------


def started(folder: Path, runs: dict[str, str], done: int) -> tuple[dict[str, str], dict[str, Any], Any]:
    """The ids of runs, and the options and settings that Accelerate gets, of all trackers."""
    ids = {"trackio": {"name": "t-1"}, "wandb": {"id": "w-1"}, "mlflow": {"info": SimpleNamespace(run_id="m-1")}}
    libraries = [SimpleNamespace(name=name, tracker=SimpleNamespace(**run)) for name, run in ids.items()]
    process = MagicMock(is_main_process=True, trackers=[*libraries, SimpleNamespace(name="tensorboard")])
    found = start_trackers(process, recipe_of(tracker=",".join(TRACKERS)), folder, runs, done)
    project, settings, options = process.init_trackers.call_args.args
    assert project == "tiny" and process.project_configuration.logging_dir == str(folder)
    return found, options, settings


def test_trackers_start_and_continue_their_runs(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    runs, options, settings = started(folder, {}, 0)
    assert runs == {"trackio": "t-1", "wandb": "w-1", "mlflow": "m-1"} and settings["name"] == "tiny"
    assert options == {
        "tensorboard": {}, "trackio": {"name": "first", "resume": "never"}, "wandb": {"name": "first"},
        "mlflow": {"run_name": "first"},
    }  # fmt: skip
    _, options, settings = started(folder, runs, 8)
    assert settings is None and options == {
        "tensorboard": {"purge_step": 9}, "trackio": {"name": "t-1", "resume": "allow"},
        "wandb": {"name": "first", "id": "w-1", "resume": "allow"}, "mlflow": {"run_id": "m-1"},
    }  # fmt: skip
    other = MagicMock(is_main_process=False)
    assert start_trackers(other, recipe_of(tracker="wandb"), tmp_path, {}, 0) == {} and not other.init_trackers.called


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_library_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf"qkv\[{name}\]"):
        check_trackers(recipe_of(tracker=name))


def test_settings_are_plain_values_without_folders(tmp_path: Path) -> None:
    data = tmp_path / "own.csv"
    data.touch()
    recipe = recipe_of(data=str(data), out=str(tmp_path / "a"), model={"encoder": {"layers": 2}, "act": "relu"})
    told = trackers.settings(recipe)
    assert all(isinstance(value, str | int | float) for value in told.values()) and str(tmp_path) not in str(told)
    expected = {"data": "own.csv", "out": "a", "model.act": "relu", "model.encoder": '{"layers": 2}'}
    assert {**expected, "text.vocab_size": 2048, "learning_rate": 1e-3}.items() <= told.items() and "init" not in told
