"""`qkv sweep`: its trials are ordinary trainings, it goes on where it was ended, and nobody waits for a mistake."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errors import raises_sentence
from locks import locked_by_another
from qkv.scripts import cli, sweep
from qkv.scripts.common import extras
from qkv.scripts.common.run_folder import LOCK
from qkv.scripts.sweeps.record import read_sweep
from qkv.scripts.training.loop import Loop

TINY = [
    "max_steps=2", "log_every=1", "eval_every=2", "save_every=1", "model.hidden_size=16", "model.num_hidden_layers=1",
]  # fmt: skip


def swept(folder: Path, *words: str) -> int:
    return cli.main(["sweep", "digits", *TINY, f"out={folder}", *words])


def results(folder: Path) -> list[tuple[Any, ...]]:
    """What a sweep chose and reached, without times."""
    found = read_sweep(folder)
    assert found is not None
    return [(trial.chosen, trial.state, trial.metrics, trial.error) for trial in found.trials]


def test_a_grid_is_as_many_trainings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert swept(tmp_path / "grid", "lr=1e-3,1e-2") == 0
    printed = capsys.readouterr().out
    rates = {"trial-001": "1e-3", "trial-002": "1e-2"}
    for name, rate in rates.items():
        alone = tmp_path / name
        assert cli.main(["train", "digits", *TINY, f"lr={rate}", f"out={alone}"]) == 0
        ours = tmp_path / "grid" / name
        for file in ("model.safetensors", "metrics.jsonl", "config.json"):
            assert (ours / file).read_bytes() == (alone / file).read_bytes()
        assert {path.name for path in ours.iterdir()} == {path.name for path in alone.iterdir()}
    best = read_sweep(tmp_path / "grid").ranked()[0]
    values = [json.loads((tmp_path / name / "record.json").read_text())["metrics"]["validation"] for name in rates]
    assert best.metrics["accuracy"] == max(value["accuracy"] for value in values)
    line = f"learning_rate={best.chosen['learning_rate']} seed=1 out={tmp_path / 'grid'}/best-seed-1"
    assert f"{line}\n" in printed and "validation accuracy" in printed


@pytest.mark.parametrize(
    "words", [pytest.param(["lr=1e-3,1e-2"], marks=pytest.mark.slow), ["lr=1e-3..1e-1", "--trials", "2"]], ids=str
)
def test_a_killed_sweep_goes_on_with_what_is_missing(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the second training, after its first step."""
    steps, taken = Loop.steps, []

    def killed(self: Loop) -> Iterator[object]:
        for step in steps(self):
            taken.append(step)
            if len(taken) == 4:
                raise KeyboardInterrupt
            yield step

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "steps", killed)
        assert swept(tmp_path / "killed", *words) == 130
    assert [state for _, state, _, _ in results(tmp_path / "killed")] == ["finished", "running"]
    first = tmp_path / "killed" / "trial-001" / "record.json"
    before = first.stat().st_mtime_ns
    assert swept(tmp_path / "killed", *words) == 0
    assert first.stat().st_mtime_ns == before and "resuming from" in capsys.readouterr().err
    assert swept(tmp_path / "whole", *words) == 0
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_a_trial_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(tmp_path / "out", "batch_size=30,32", "accumulate=4") == 0
    (_, state, _, error), (_, other, metrics, _) = results(tmp_path / "out")
    assert (state, other) == ("failed", "finished") and "make it a multiple of 4" in error and metrics
    said = capsys.readouterr()
    assert f"trial 1 failed: {error}" in said.err and "failed" in said.out
    assert swept(tmp_path / "none", "batch_size=30,34", "accumulate=4") == 1
    assert "every trial failed, the first because batch_size=30" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lerning_rate=1,2"], "did you mean 'learning_rate'?"),
        (["lr=1e-3,fast"], "learning_rate='fast' is not a number"),
        (["batch_size=0..8"], "batch_size=0"),
        (["seed=1"], "a sweep varies at least one field"),
        (["lr=1e-3,1e-2", "--trials", "5"], "--trials=5 is for ranges"),
        (["lr=1e-3..1e-2", "--trials", "0"], "--trials=0 must be at least 1"),
        (["lr=1e-3,1e-2", "holdout=0"], "digits has no validation split, and the test split chooses nothing; add hold"),
    ],
)
def test_a_mistake_is_answered_before_anything_trains(
    tmp_path: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "train", None)
    assert swept(tmp_path / "out", *words) == 1
    assert message in capsys.readouterr().err and not list(tmp_path.glob("out/trial*"))


def test_a_range_names_the_extra_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    assert swept(tmp_path / "out", "lr=1e-3..1e-2") == 1
    assert capsys.readouterr().err.endswith("optuna is not installed; install it with pip install 'qkv[sweep]'\n")


def test_own_data_are_swept_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{'good fine' if row % 2 else 'bad poor'} {row},{'yes' if row % 2 else 'no'}" for row in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    small = ["max_steps=2", "model.hidden_size=16", "model.num_attention_heads=2", "model.num_hidden_layers=1"]
    words = ["sweep", str(tmp_path / "own.csv"), "lr=1e-3,1e-2", *small, f"out={tmp_path / 'out'}"]
    assert cli.main(words) == 0
    assert [state for _, state, _, _ in results(tmp_path / "out")] == ["finished"] * 2
    assert capsys.readouterr().out.count("inferred; key=value overrides it") == 1


def test_a_second_sweep_in_a_folder_is_refused_and_one_that_was_killed_at_its_start_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.json.partial").write_text("{")
    (tmp_path / LOCK).touch()
    with locked_by_another(tmp_path / LOCK):
        assert swept(tmp_path, "lr=1e-3,1e-2") == 1
    assert f"qkv: another training writes to {tmp_path}; wait for it, or give another out=" in capsys.readouterr().err
    with sweep.locked(tmp_path):
        pass
    (tmp_path / "notes").touch()
    (tmp_path / "sweep.json.partial").unlink()
    (tmp_path / LOCK).unlink()
    with raises_sentence(str(tmp_path), "is not empty", error=FileExistsError), sweep.locked(tmp_path):
        raise AssertionError("it would write among files of somebody else")
