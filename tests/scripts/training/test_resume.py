"""Resuming: the same bits as without the interruption, in the same training alone, and in its folder alone."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

import own_runs
from fake_clock import FakeClock
from locks import locked_by_another
from qkv.scripts.cli import main
from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.training import resume
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.record import read_metrics
from qkv.scripts.training.resume import LOCK, finished_record, locked_folder, tell_of_stopped_run
from tiny_training import go, manager, result, take_steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training without an interruption."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert go(folder) == ""
    return folder


class Death(BaseException):
    """An error that nobody catches."""


def die_in_step(number: int, monkeypatch: pytest.MonkeyPatch, folder: Path, **fields: object) -> None:
    """Train until a step that does not end."""
    step = Loop.step

    def mortal(loop: Loop, *arguments: object) -> object:
        if loop.done == number - 1:
            raise Death
        return step(loop, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "step", mortal)
        with pytest.raises(Death):
            go(folder, **fields)


def test_training_that_died_twice_ends_with_the_same_bits(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for number, taken in ((2, None), (6, 4), (10, 8)):
        die_in_step(number, monkeypatch, folder)
        if taken is not None:
            (folder / "metrics.jsonl").open("a").write('{"step": 9, "lo')
    assert go(folder) == f"resuming from {folder / 'checkpoints' / 'step-000008'}"
    assert result(folder) == result(whole)
    last = folder / "checkpoints" / "step-000010"
    state = json.loads((last / "state.json").read_text())
    assert state["resumed"] == [4, 8] and state["processes"] == 1
    assert {path.suffix for path in last.iterdir()} == {".json", ".jsonl", ".safetensors"}, "and no pickle"


def test_damaged_checkpoint_is_skipped(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    die_in_step(8, monkeypatch, folder)
    (folder / "checkpoints" / "step-000006" / "state.json").unlink()
    sentence = go(folder)
    assert "step-000006" in sentence and "state.json" in sentence and sentence.endswith("step-000004")
    assert result(folder) == result(whole)


def test_best_weights_come_back(tmp_path: Path) -> None:
    found = manager(tmp_path / "run", keep=1, eval_every=2, watch="validation loss")
    losses = iter((3.0, 1.0, 4.0, 1.5, 9.0))
    found.loop.evaluate = lambda split: {"loss": next(losses)}
    take_steps(found)
    assert (found.early_stopping.step, found.early_stopping.results) == (4, {"validation": {"loss": 1.0}})
    assert "4" in found.logger.best and sorted(found.checkpoints.steps()) == [4, 10]
    found.load_kept()
    kept = load_file(found.checkpoints.path(4) / "model.safetensors")
    last = load_file(found.checkpoints.path(10) / "model.safetensors")
    now = found.loop.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in kept.items())
    assert not all(torch.equal(now[name], weight) for name, weight in last.items())


def test_patience_is_resumed(tmp_path: Path) -> None:
    words = {"eval_every": 2, "watch": "validation loss", "patience": 2, "save_every": 1}
    found = manager(tmp_path / "run", **words)
    losses = iter((1.0, 3.0, 2.0))
    found.loop.evaluate = lambda split: {"loss": next(losses)}
    take_steps(found)
    assert (found.loop.done, found.early_stopping.step) == (6, 2)
    again = manager(tmp_path / "run", **words)
    again.resume()
    take_steps(again)
    assert (again.loop.done, again.early_stopping.step, again.early_stopping.best_step) == (6, 2, 2)
    longer = manager(tmp_path / "run", **words, max_steps=20)
    longer.resume()
    assert longer.early_stopping.waited == 0 and longer.early_stopping.step == 2


def test_checkpoint_is_due_after_minutes_and_a_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes a minute, and a checkpoint is due after three; later saving takes a minute."""
    clock, step = FakeClock(), Loop.step

    def timed(loop: Loop, *arguments: object) -> object:
        clock.now += 60
        return step(loop, *arguments)

    monkeypatch.setattr(resume, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(Loop, "step", timed)
    found = manager(tmp_path, save_every=None, eval_every=100, save_minutes=3.0, keep=9)
    take_steps(found)
    assert sorted(found.checkpoints.steps()) == [3, 6, 9, 10]
    found.cost, found.saved = 60.0, clock.now
    for seconds, due in ((180, False), (1000, False), (2001, True)):
        clock.now = found.saved + seconds
        assert found.save_requested() == due


@pytest.mark.parametrize("name", ["accumulate", "log_every", "eval_every", "save_every", "keep", "workers"])
def test_fields_without_influence_may_change(whole: Path, name: str) -> None:
    found = manager(whole, **{name: 2})
    found.record["config"]["transformers_version"] = "0"
    found.resume()
    assert found.loop.done == 10


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"learning_rate": 0.5}, "learning_rate=0.01.*0.5"),
        ({"seed": 3}, "seed=0.*3"),
        ({"max_steps": 9}, "max_steps=10.*9"),
        ({"model": {"hidden_size": 8}}, r"model\.hidden_size=None.*8"),
    ],
)
def test_another_training_is_refused_by_its_field(whole: Path, fields: dict, words: str) -> None:
    with pytest.raises(ValueError, match=f"step-000010 .*{words}.*out="):
        manager(whole, **fields).resume()
    manager(whole, max_steps=12, warmup_steps=3).resume()  # as inferred for a longer training
    for group, field, word in (("data", "sha256", "data="), ("config", "norm_eps", r"config\.norm_eps=")):
        found = manager(whole)
        found.record[group][field] = 1.0
        with pytest.raises(ValueError, match=word):
            found.resume()


def test_finished_run_is_known_by_its_record(tmp_path: Path) -> None:
    record = manager(tmp_path).record
    assert finished_record(tmp_path, record) is None
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert finished_record(tmp_path, record)["recipe"]["name"] == "tiny"
    with pytest.raises(ValueError, match="seed=0.*1"):
        finished_record(tmp_path, manager(tmp_path, seed=1).record)
    longer = manager(tmp_path, max_steps=20).record
    with pytest.raises(ValueError, match=f"checkpoint.*init={tmp_path}"):
        finished_record(tmp_path, longer)
    (tmp_path / "checkpoints" / "step-000010").mkdir(parents=True)
    assert finished_record(tmp_path, longer) is None


def opened(*words: str) -> Path:
    with locked_folder(load("digits", list(words)), Accelerator(cpu=True), {}) as folder:
        return folder


def test_folder_is_new_or_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    assert opened(f"out={folder}") == opened(f"out={folder}") == folder
    (tmp_path / "x").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").touch()
    assert opened(f"out={tmp_path / 'run'}") == tmp_path / "run"
    for words in ([f"out={tmp_path}"], [f"out={tmp_path / 'x'}"], [f"out={folder}", "resume=never"]):
        with pytest.raises(FileExistsError, match="not empty.*out="):
            opened(*words)
    monkeypatch.chdir(tmp_path)
    folder = opened()
    assert folder.parent.name == "runs" and len(folder.name) == len("digits-YYYYmmdd-HHMMSS")


def test_a_training_without_out_names_the_run_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs") / "tiny-20260101-000000"
    folder.mkdir(parents=True)
    die_in_step(6, monkeypatch, folder)
    found = manager(tmp_path / "new")

    def told(**fields: object) -> str:
        capsys.readouterr()
        tell_of_stopped_run(
            changed(found.loop.recipe, **fields), found.record | {"recipe": found.record["recipe"] | fields}
        )
        return capsys.readouterr().err

    assert f"out={folder}" in told() and "step 4 of 10" in told()
    assert told(seed=3) == told(out="elsewhere") == told(resume="never") == ""
    with locked_by_another(folder / "checkpoints" / LOCK):
        assert told() == "", "it is being trained"
    (folder / "record.json").touch()
    assert told() == "", "it is finished"


def test_second_training_in_a_folder_is_refused(tmp_path: Path) -> None:
    folder = opened(f"out={tmp_path / 'run'}")
    with locked_by_another(folder / "checkpoints" / LOCK):
        with pytest.raises(FileExistsError, match=f"{folder}.*out="):
            opened(f"out={folder}")
    assert opened(f"out={folder}") == folder


@pytest.mark.parametrize("schedule", ["constant_with_warmup", "cosine"])
def test_longer_training_follows_the_longer_schedule(schedule: str, tmp_path: Path) -> None:
    go(tmp_path / "run", schedule=schedule)
    found = manager(tmp_path / "run", schedule=schedule, max_steps=14)
    assert "14 steps instead of 10" in found.resume()
    longer = manager(tmp_path / "other", schedule=schedule, max_steps=14).loop.schedule
    expected = [longer.base_lrs[0] * longer.lr_lambdas[0](done) for done in range(10, 14)]
    assert [group["lr"] for group in found.loop.optimizer.param_groups] == [expected[0]] * 2
    assert [step.learning_rate for step in found.loop.steps()] == expected


def test_metrics_without_a_checkpoint_are_removed(tmp_path: Path) -> None:
    assert manager(tmp_path).resume() == ""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert str(tmp_path) in manager(tmp_path).resume()
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize("kind", ["chats", "infilled"])
def test_own_data_end_with_the_same_bits_after_a_death_and_in_parts(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, step = own_runs.data(kind, tmp_path, 40), Loop.step
    words = [word for word in own_runs.KINDS[kind] if not word.startswith("max_steps")]
    words += ["max_steps=5", "save_every=2", "batch_size=4", "holdout=0", "log_every=1"]

    def trained(name: str, *more: str) -> dict[str, torch.Tensor]:
        assert main(["train", str(table), *words, *more, f"out={tmp_path / name}"]) == 0
        return load_file(tmp_path / name / "model.safetensors")

    def mortal(loop: Loop, *arguments: object) -> object:
        if loop.done == 3:
            raise Death
        return step(loop, *arguments)

    whole = trained("whole")
    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(Loop, "step", mortal)
        trained("died")
    died, _ = trained("died"), trained("parts", "accumulate=4")
    assert json.loads((tmp_path / "died" / "record.json").read_text())["resumed"] == [2]
    assert all(value.equal(died[name]) for name, value in whole.items())
    alone, parts = ([line["loss"] for line in read_metrics(tmp_path / name)] for name in ("whole", "parts"))
    assert len(alone) > 5 and parts == pytest.approx(alone, rel=1e-6)
