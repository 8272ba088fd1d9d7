"""The journal: which lines are written when, and by whom."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from fake_clock import FakeClock
from qkv.scripts.common.run_folder import CURVE, read_metrics
from qkv.scripts.recipes.loading import changed
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Step
from recipes import recipe_of

RECIPE = recipe_of(max_steps=5, log_every=2, batch_size=3)


class Process:
    """What a journal asks of an accelerator."""

    def __init__(self, *, is_main_process: bool) -> None:
        self.is_main_process, self.logged = is_main_process, []

    def log(self, values: dict, step: int) -> None:
        self.logged.append((step, values))


MAIN, OTHER = Process(is_main_process=True), Process(is_main_process=False)


def step(number: int, loss: float) -> Step:
    return Step(number, 0.1 * number, torch.tensor(loss), torch.tensor(2.0), torch.tensor(7))


def test_losses_are_averaged_since_the_last_line_and_the_last_step_is_logged(tmp_path: Path) -> None:
    logger = MetricLogger(tmp_path, RECIPE, MAIN)
    for number in range(1, 6):
        logger.log_step(step(number, float(number)))
    lines = read_metrics(tmp_path)
    assert [(line["step"], line["loss"]) for line in lines] == [(2, 1.5), (4, 3.5), (5, 5.0)]
    assert lines[0] == {"step": 2, "loss": 1.5, "lr": 0.2, "grad_norm": 2.0, "samples": 6, "tokens": 14}


class Shown:
    """A display that keeps what it was to show."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def update(self, number: int, state: str) -> None:
        self.states.append(state)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of loggers."""
    clock = FakeClock()
    monkeypatch.setattr(MetricLogger, "clock", clock)
    return clock


def test_loss_metric_gradient_norm_and_throughput_are_shown(tmp_path: Path, clock: FakeClock) -> None:
    logger = MetricLogger(tmp_path, RECIPE, MAIN)
    logger.progress = shown = Shown()
    for number in (1, 2):
        clock.now += 0.001
        logger.log_step(step(number, 1.0))
    clock.now += 100  # an evaluation is no time of training
    logger.log_evaluation(2, {"validation": {"loss": 0.5, "accuracy": 0.25}})
    assert shown.states[0] == "loss 1.0000  lr 0.1  grad_norm 2"
    assert shown.states[-1] == "loss 1.0000  validation accuracy 0.2500  lr 0.2  grad_norm 2  7 k tokens/s"
    clock.now += 7
    for number in (3, 4):
        logger.log_step(step(number, 1.0))
    assert shown.states[-1].endswith("  2 tokens/s")


def test_the_curve_is_drawn_while_the_training_goes_on(tmp_path: Path, clock: FakeClock) -> None:
    loggers = [MetricLogger(tmp_path, RECIPE, process) for process in (OTHER, MAIN)]
    for logger in loggers:
        clock.now += 60
        logger.log_step(step(1, 1.0))
        assert not (tmp_path / CURVE).exists()
        logger.log_step(step(2, 1.0))
    with Image.open(tmp_path / CURVE) as picture:
        assert picture.format == "PNG"


def test_nothing_is_drawn_before_a_line_is_there(tmp_path: Path, clock: FakeClock) -> None:
    logger = MetricLogger(tmp_path, RECIPE, MAIN)
    clock.now += 60
    logger.log_evaluation(1, {})  # of a run without validation split
    assert not any(tmp_path.iterdir())


def test_evaluations_are_lines_with_a_split(tmp_path: Path) -> None:
    MetricLogger(tmp_path, RECIPE, MAIN).log_evaluation(4, {"test": {"loss": 0.5, "accuracy": 0.9}})
    assert read_metrics(tmp_path) == [{"step": 4, "split": "test", "loss": 0.5, "accuracy": 0.9}]


def test_trackers_get_every_line_by_split(tmp_path: Path) -> None:
    process = Process(is_main_process=True)
    logger = MetricLogger(tmp_path, changed(RECIPE, log_every=1), process)
    logger.log_step(step(1, 2.0))
    logger.log_evaluation(1, {"test": {"loss": 0.5}})
    (first, trained), second = process.logged
    assert first == 1 and trained["train/loss"] == 2.0 and trained["train/tokens"] == 7
    assert second == (1, {"test/loss": 0.5})


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    logger = MetricLogger(tmp_path, changed(RECIPE, log_every=1), OTHER)
    logger.log_step(step(1, 1.0))
    logger.log_evaluation(1, {"test": {"loss": 0.5}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_training(tmp_path: Path, loss: float) -> None:
    with pytest.raises(FloatingPointError, match="at step 1; try a lower learning_rate"):
        MetricLogger(tmp_path, RECIPE, MAIN).log_step(step(1, loss))
