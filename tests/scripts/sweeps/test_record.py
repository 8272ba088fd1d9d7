"""A sweep's record comes back as it was, is sorted by its metric's direction, and names what another sweep has."""

import csv
from pathlib import Path

from errors import raises_sentence
from qkv.scripts.sweeps.record import SweepRecord, Trial, check_same_sweep, read_sweep


def sweep_of(*values: float | None, metric: str = "accuracy", watch: str | None = None) -> SweepRecord:
    sweep = SweepRecord("qkv sweep digits lr=1,2", "digits", ["max_steps=2"], {"learning_rate": "1,2"})
    for number, value in enumerate(values, 1):
        trial = Trial(number, f"out/trial-{number:03}", {"learning_rate": str(number)})
        sweep.trials.append(trial)
        if value is None:
            trial.state, trial.error = "failed", "why"
        else:
            metrics = {"validation": {"loss": value, metric: value}, "test": {metric: -value}}
            sweep.finish(trial, {"metrics": metrics, "time": {"training_wall_s": 90.0}}, watch)
    return sweep


def numbers(sweep: SweepRecord) -> list[int]:
    return [trial.number for trial in sweep.ranked()]


def test_the_best_on_the_validation_split_comes_first() -> None:
    assert numbers(sweep_of(0.2, None, 0.9, 0.5)) == [3, 4, 1, 2]
    assert numbers(sweep_of(0.2, 0.9, metric="wer")) == [1, 2]
    watched = sweep_of(0.2, 0.9, watch="validation loss")
    assert (watched.metric, numbers(watched)) == ("loss", [1, 2])
    assert sweep_of(0.2, metric="bits_per_byte").metric == "loss"


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    assert read_sweep(tmp_path) is None
    sweep = sweep_of(0.2, None, 0.9)
    sweep.write(tmp_path)
    assert read_sweep(tmp_path) == sweep
    with (tmp_path / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["trial"], row["learning_rate"], row["validation accuracy"], row["state"]) for row in rows] == [
        ("3", "3", "0.9", "finished"), ("1", "1", "0.2", "finished"), ("2", "2", "", "failed"),
    ]  # fmt: skip
    assert rows[0]["minutes"] == "1.5" and rows[0]["folder"] == "out/trial-003"


def test_another_sweep_is_refused_and_free_fields_may_change() -> None:
    saved, wanted = sweep_of(), sweep_of()
    wanted.fixed = ["max_steps=2", "accumulate=2"]
    check_same_sweep(saved, wanted, Path("out"), ["accumulate"])
    with raises_sentence("out is of a sweep whose other fields are max_steps=2", "and this one has accumulate=2"):
        check_same_sweep(saved, wanted, Path("out"), [])
    wanted.space = {"learning_rate": "1,3"}
    with raises_sentence("fields that vary are learning_rate=1,2"):
        check_same_sweep(saved, wanted, Path("out"), [])
