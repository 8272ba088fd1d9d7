"""Going on: the same bits as without the interruption, only in the same training, and only where it was."""

import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from errors import raises_sentence
from locks import locked_by_another
from qkv.scripts.common.run_folder import LOCK
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.resume import finished_record, locked_folder, open_folder
from qkv.scripts.training.state import load_kept_weights
from tiny_training import go, manager, result, take_steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert go(folder) == ""
    return folder


class Death(BaseException):
    """What nobody catches."""


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


@pytest.mark.parametrize("background", [False, True])
def test_a_training_that_died_twice_is_the_same_to_the_bit(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    folder = tmp_path / "run"
    for number, taken in ((2, None), (6, 4), (10, 8)):
        die_in_step(number, monkeypatch, folder, async_save=background)
        if taken is not None:
            (folder / "metrics.jsonl").open("a").write('{"step": 9, "lo')
    assert go(folder, async_save=background) == f"resuming from {folder / 'checkpoints' / 'step-000008'}"
    assert result(folder) == result(whole)
    state = json.loads((folder / "checkpoints" / "step-000010" / "state.json").read_text())
    assert state["resumed"] == [4, 8] and state["processes"] == 1


def test_dropout_and_changes_make_the_comparison_worth_something(whole: Path, tmp_path: Path) -> None:
    go(tmp_path / "other", seed=1)
    other = result(tmp_path / "other")
    assert all(digest != other[name] for name, digest in result(whole).items())


@pytest.mark.parametrize("averaged", [None, 0.9])
def test_the_best_weights_come_back_however_old_their_checkpoint_is(averaged: float | None, tmp_path: Path) -> None:
    found = manager(tmp_path / "run", ema_decay=averaged, keep=1, eval_every=2, watch="validation loss")
    losses = iter((3.0, 1.0, 4.0, 1.5, 9.0))
    found.loop.evaluate = lambda split: {"loss": next(losses)}
    take_steps(found)
    assert (found.early_stopping.step, found.early_stopping.results) == (4, {"validation": {"loss": 1.0}})
    assert sorted(found.checkpoints.steps()) == [4, 10]
    load_kept_weights(found.loop, found.tensors(found.early_stopping.step))
    kept = load_file(found.checkpoints.path(4) / ("ema.safetensors" if averaged else "model.safetensors"))
    last = load_file(found.checkpoints.path(10) / "model.safetensors")
    now = found.loop.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in kept.items())
    assert not all(torch.equal(now[name], weight) for name, weight in last.items())


def test_patience_ends_a_training_also_one_that_is_taken_up_again(tmp_path: Path) -> None:
    words = {"eval_every": 2, "watch": "validation loss", "patience": 2, "save_every": 1}
    found = manager(tmp_path / "run", **words)
    losses = iter((1.0, 3.0, 2.0))
    found.loop.evaluate = lambda split: {"loss": next(losses)}
    take_steps(found)
    assert (found.loop.done, found.early_stopping.step) == (6, 2)
    again = manager(tmp_path / "run", **words)
    again.resume()
    again.loop.evaluate = lambda split: {"loss": 5.0}
    take_steps(again)
    assert (again.loop.done, again.early_stopping.step, again.early_stopping.best_step) == (6, 2, 2)


def test_a_damaged_checkpoint_is_skipped_aloud(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    die_in_step(8, monkeypatch, folder)
    (folder / "checkpoints" / "step-000006" / "state.json").unlink()
    assert go(folder) == (
        f"checkpoint {folder / 'checkpoints' / 'step-000006'} is incomplete (state.json is missing); resuming from "
        "step-000004"
    )
    assert result(folder) == result(whole)


def test_nothing_in_a_checkpoint_is_a_pickle(whole: Path) -> None:
    names = {path.name for path in (whole / "checkpoints" / "step-000010").iterdir()}
    assert names == {
        "manifest.json", "metrics.jsonl", "model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["accumulate", "log_every", "eval_every", "save_every", "keep", "workers"])
def test_what_only_cuts_up_or_looks_on_may_change(whole: Path, name: str) -> None:
    found = manager(whole, **{name: 2})
    found.resume()
    assert found.loop.done == 10


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"learning_rate": 0.5}, "learning_rate=0.01, and this one has 0.5"),
        ({"seed": 3}, "seed=0, and this one has 3"),
        ({"max_steps": 9}, "max_steps=10, and this one has 9"),
        ({"model": {"hidden_size": 8}}, "model.hidden_size=None, and this one has 8"),
    ],
)
def test_another_training_is_refused_by_the_name_of_the_field(whole: Path, fields: dict, words: str) -> None:
    with pytest.raises(ValueError) as error:
        manager(whole, **fields).resume()
    place = whole / "checkpoints" / "step-000010"
    assert str(error.value) == (f"{place} is of a training with {words}; set it back to resume, or give another out=")


def test_other_data_and_another_config_are_refused(whole: Path) -> None:
    found = manager(whole)
    found.record["data"] = {"sha256": "0"}
    with pytest.raises(ValueError, match="is of a training with data='.*, and this one has '0'; set it back"):
        found.resume()
    found = manager(whole)
    found.record["config"]["norm_eps"] = 1.0
    with pytest.raises(ValueError, match="config.norm_eps=1e-.*, and this one has 1.0"):
        found.resume()


def test_a_finished_run_is_known_by_its_record_and_only_for_the_same_training(tmp_path: Path) -> None:
    record = manager(tmp_path).record
    assert finished_record(tmp_path, record) is None
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert finished_record(tmp_path, record)["recipe"]["name"] == "tiny"
    with pytest.raises(ValueError, match="seed=0, and this one has 1"):
        finished_record(tmp_path, manager(tmp_path, seed=1).record)


def test_a_folder_is_made_and_a_full_one_refused(tmp_path: Path) -> None:
    recipe = load("digits", [f"out={tmp_path / 'a' / 'b'}"])
    folder = open_folder(recipe, Accelerator(cpu=True))
    assert folder.is_dir() and open_folder(recipe, Accelerator(cpu=True)) == folder
    (tmp_path / "x").touch()
    for place, resume in ((tmp_path, "auto"), (tmp_path, "never"), (tmp_path / "x", "auto")):
        with pytest.raises(FileExistsError, match="is not empty; give another out=, or remove it"):
            open_folder(load("digits", [f"out={place}", f"resume={resume}"]), Accelerator(cpu=True))


@pytest.mark.parametrize("name", ["checkpoints", "record.json"])
def test_a_run_is_opened_again_unless_that_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert open_folder(load("digits", [f"out={tmp_path}"]), Accelerator(cpu=True)) == tmp_path
    with pytest.raises(FileExistsError, match="is not empty; give another out=, or remove it"):
        open_folder(load("digits", [f"out={tmp_path}", "resume=never"]), Accelerator(cpu=True))


def test_without_out_the_folder_is_named_by_recipe_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = open_folder(load("digits"), Accelerator(cpu=True))
    assert folder.parent.name == "runs" and len(folder.name) == len("digits-YYYYmmdd-HHMMSS")


CONSTANT = {"schedule": "constant_with_warmup", "warmup_steps": 2}


def test_a_finished_training_goes_on_to_more_steps_as_if_it_had_had_them_from_the_start(tmp_path: Path) -> None:
    go(tmp_path / "long", **CONSTANT, max_steps=14)
    go(tmp_path / "run", **CONSTANT)
    sentence = go(tmp_path / "run", **CONSTANT, max_steps=14)
    assert sentence.endswith("step-000010; 14 steps instead of 10: the learning rate stays at 0.01")
    one, other = (result(tmp_path / name, 14) for name in ("long", "run"))
    one.pop("metrics.jsonl"), other.pop("metrics.jsonl")  # step 10 was a last one, so it has lines of its own
    assert one == other


def test_the_learning_rate_goes_on_by_the_longer_schedule(tmp_path: Path) -> None:
    go(tmp_path / "run")
    found = manager(tmp_path / "run", max_steps=20)
    assert "20 steps instead of 10: the learning rate goes from 0 to 0.00587, where the longer cosine" in found.resume()
    longer = manager(tmp_path / "other", max_steps=20).loop.schedule
    rates = [group["lr"] for group in found.loop.optimizer.param_groups]
    assert rates == [base * rule(10) for base, rule in zip(longer.base_lrs, longer.lr_lambdas, strict=True)]
    steps = list(found.loop.steps())
    assert [step.learning_rate for step in steps] == [
        longer.base_lrs[0] * longer.lr_lambdas[0](n) for n in range(10, 20)
    ]


def test_more_steps_of_a_finished_run_need_a_checkpoint(tmp_path: Path) -> None:
    record = manager(tmp_path).record
    (tmp_path / "record.json").write_text(json.dumps(record))
    (tmp_path / "checkpoints").mkdir()
    longer = manager(tmp_path, max_steps=20).record
    with pytest.raises(
        ValueError, match="is finished and has no checkpoint to go on from; give another out= and init="
    ):
        finished_record(tmp_path, longer)
    (tmp_path / "checkpoints" / "step-000010").mkdir()
    assert finished_record(tmp_path, longer) is None


def test_a_training_without_a_checkpoint_says_that_it_starts_again(tmp_path: Path) -> None:
    assert manager(tmp_path).resume() == ""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert manager(tmp_path).resume() == (
        f"{tmp_path} has no checkpoint yet, so the training starts again from its first step"
    )
    assert not (tmp_path / "metrics.jsonl").exists()


def test_the_best_so_far_is_named(tmp_path: Path) -> None:
    found = manager(tmp_path, watch="validation loss")
    found.loop.done = 3
    assert found.update({"validation": {"loss": 0.5}}) and found.logger.best == "best validation loss 0.5000 at step 3"
    found.loop.done = 5
    assert not found.update({"validation": {"loss": 0.6}}) and found.logger.best.endswith("0.5000 at step 3")


def test_a_second_training_in_a_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    recipe, accelerator = load("digits", [f"out={tmp_path / 'run'}"]), Accelerator(cpu=True)
    with locked_folder(recipe, accelerator) as folder:
        lock = folder / "checkpoints" / LOCK
    with locked_by_another(lock):
        with raises_sentence("another training", str(folder), "out", error=FileExistsError):
            with locked_folder(recipe, accelerator):
                raise AssertionError("both would train")
    with locked_folder(recipe, accelerator) as again:
        assert again == folder
