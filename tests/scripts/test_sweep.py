"""`qkv sweep`: its trials are ordinary trainings, resumed after a kill, and every mistake precedes the first."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from locks import locked_by_another
from qkv.scripts import cli, sweep
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.resume import LOCK

SMALL = ["max_steps=2", "model.hidden_size=16", "model.num_attention_heads=2", "model.num_hidden_layers=1"]
TINY = [*SMALL, "log_every=1", "eval_every=2", "save_every=1"]


def swept(folder: Path, *words: str) -> int:
    return cli.main(["sweep", "digits", *TINY, f"out={folder}", *words])


def results(folder: Path) -> list[tuple[dict[str, Any], str, float | None]]:
    """Values, states and metrics of a sweep."""
    study = optuna.load_study(study_name="sweep", storage=f"sqlite:///{folder}/sweep.db")
    return [(trial.params, trial.state.name, trial.value) for trial in study.trials]


@pytest.mark.slow
def test_a_grid_is_ordinary_trainings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert swept(tmp_path / "grid", "lr=1e-3,1e-2") == 0
    printed = capsys.readouterr().out
    accuracies = {}
    for name, rate in {"trial-001": "1e-3", "trial-002": "1e-2"}.items():
        assert cli.main(["train", "digits", *TINY, f"lr={rate}", f"out={tmp_path / name}"]) == 0
        alone, ours = tmp_path / name, tmp_path / "grid" / name
        for file in ("model.safetensors", "metrics.jsonl", "config.json"):
            assert (ours / file).read_bytes() == (alone / file).read_bytes()
        assert {path.name for path in ours.iterdir()} == {path.name for path in alone.iterdir()}
        accuracies[rate] = json.loads((alone / "record.json").read_text())["metrics"]["validation"]["accuracy"]
    assert results(tmp_path / "grid") == [({"lr": rate}, "COMPLETE", value) for rate, value in accuracies.items()]
    ranked = sorted(accuracies, key=lambda rate: -accuracies[rate])
    assert re.findall(r"lr=(\S+)", printed) == ranked


def test_a_watched_loss_ranks_the_lowest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(recipe: Recipe, *given: object) -> SimpleNamespace:
        metrics = {"accuracy": 1.0, "loss": recipe.optimization.learning_rate}
        return SimpleNamespace(record={"metrics": {"validation": metrics}})

    monkeypatch.setattr(sweep, "train", trained)
    assert swept(tmp_path / "out", "lr=1e-2,1e-3", "watch=validation loss") == 0
    assert [value for *_, value in results(tmp_path / "out")] == [-0.01, -0.001]
    assert re.findall(r"lr=(\S+)", capsys.readouterr().out) == ["1e-3", "1e-2"]


@pytest.mark.parametrize("words", [["lr=1e-3,1e-2"], ["lr=1e-3..1e-1", "--trials", "2"]], ids=str)
@pytest.mark.slow
def test_a_killed_trial_is_run_again(tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert [state for _, state, _ in results(tmp_path / "killed")] == ["COMPLETE", "RUNNING"]
    first = tmp_path / "killed" / "trial-001" / "record.json"
    before = first.stat().st_mtime_ns
    assert swept(tmp_path / "killed", *words) == swept(tmp_path / "whole", *words) == 0
    assert first.stat().st_mtime_ns == before
    assert results(tmp_path / "killed") == results(tmp_path / "whole")
    assert swept(tmp_path / "killed", *words, "threads=1") == 0  # the same sweep
    assert swept(tmp_path / "killed", "lr=1,2") == 1  # another sweep


@pytest.mark.slow
def test_a_failed_trial_ends_no_sweep(tmp_path: Path) -> None:
    lines = [f"{'good fine' if row % 2 else 'bad poor'} {row},{'yes' if row % 2 else 'no'}" for row in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    words = [*SMALL, "batch_size=30,32", "accumulate=4", f"out={tmp_path / 'out'}"]
    assert cli.main(["sweep", str(tmp_path / "own.csv"), *words]) == 0
    assert [state for _, state, _ in results(tmp_path / "out")] == ["FAIL", "COMPLETE"]
    assert swept(tmp_path / "none", "batch_size=30,34", "accumulate=4") == 1


def test_one_sweep_writes_to_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / LOCK).touch()
    with locked_by_another(tmp_path / LOCK):
        assert swept(tmp_path, "lr=1e-3,1e-2") == 1
    assert str(tmp_path) in capsys.readouterr().err and not (tmp_path / "sweep.db").exists()


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("data=a.en,a.de", None),
        ("card.title=One, two", None),
        ("model.image_size=[8, 8]", None),
        ("init=../a", None),
        ("lr=1e-4..1e-2", optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)),
        ("weight_decay=0..1", optuna.distributions.FloatDistribution(0, 1)),
        ("batch_size=8..128", optuna.distributions.IntDistribution(8, 128, log=True)),
        ("model.num_hidden_layers=1..4", optuna.distributions.IntDistribution(1, 4)),
        ("dropout=0.1,0.2", optuna.distributions.CategoricalDistribution(["0.1", "0.2"])),
    ],
)
def test_lists_and_ranges_are_distributions(word: str, kind: Any) -> None:
    assert sweep.distribution(*word.split("=", 1)) == kind
