"""Trackers get the run's name, settings and metrics, and go on in the same run: Accelerate's own, over libraries that record.

TensorBoard itself is read in test_run.py.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from accelerate import tracking
from accelerate.state import AcceleratorState
from accelerate.utils import LoggerType

from errors import raises_sentence
from qkv.scripts.common import extras
from qkv.scripts.common.extras import MissingExtraError
from qkv.scripts.common.run_folder import read_metrics
from qkv.scripts.recipes.loading import load
from qkv.scripts.training.run import train
from qkv.scripts.training.trackers import TRACKERS, check_trackers, options_of, settings, start_trackers
from recipes import recipe_of

TINY = ["max_steps=2", "log_every=1", "eval_every=2", "model.hidden_size=16", "model.num_hidden_layers=1"]
# What each library gives its run as a name, and how that is asked for again.
RUNS = {
    "trackio": (SimpleNamespace(name="t-1", log=MagicMock(), finish=MagicMock()), {"name": "t-1", "resume": "allow"}),
    "wandb": (SimpleNamespace(id="w-1", log=MagicMock(), finish=MagicMock()), {"id": "w-1", "resume": "allow"}),
    "mlflow": (SimpleNamespace(info=SimpleNamespace(run_id="m-1")), {"run_id": "m-1"}),
}


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, MagicMock]]:
    """Libraries that record how they are called, in place of trackio, wandb and mlflow."""
    modules = {name: MagicMock(__spec__=ModuleSpec(name, None)) for name in RUNS}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        module.init.return_value = module.start_run.return_value = RUNS[name][0]
        for method in ("log", "finish"):
            getattr(RUNS[name][0], method, MagicMock()).reset_mock()
    modules["mlflow"].search_experiments.return_value = []
    modules["mlflow"].utils.validation = SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=100)
    monkeypatch.setattr(tracking, "_available_trackers", [LoggerType(name) for name in TRACKERS])
    AcceleratorState._reset_state()
    yield modules
    AcceleratorState._reset_state()


def test_several_trackers_get_name_settings_and_metrics_and_go_on(
    tmp_path: Path, libraries: dict[str, MagicMock]
) -> None:
    words = [*TINY, "tracker=trackio,wandb, mlflow", f"out={tmp_path / 'first'}"]
    finished = train(load("digits", words), "qkv train digits")
    trackio, wandb, mlflow = (libraries[name] for name in RUNS)
    trackio.init.assert_called_once_with(project="digits", name="first", resume="never")
    wandb.init.assert_called_once_with(project="digits", name="first")
    assert mlflow.start_run.call_args.kwargs["run_name"] == "first"
    told = [trackio.config.update.call_args[0][0], wandb.config.update.call_args[0][0]]
    assert told == [settings(load("digits", words))] * 2
    lines = [line for line in read_metrics(finished.folder) if "split" not in line]
    for name in ("trackio", "wandb"):
        calls = RUNS[name][0].log.call_args_list
        logged = {call.kwargs["step"]: call.args[0]["train/loss"] for call in calls if "train/loss" in call.args[0]}
        assert logged == {line["step"]: line["loss"] for line in lines}
        RUNS[name][0].finish.assert_called_once_with()
    assert mlflow.log_metrics.call_args_list[0].kwargs["step"] == 1 and mlflow.end_run.called
    train(load("digits", [*words, "max_steps=3"]), "qkv train digits")
    for name, start in (("trackio", trackio.init), ("wandb", wandb.init), ("mlflow", mlflow.start_run)):
        assert RUNS[name][1].items() <= start.call_args.kwargs.items()
    assert trackio.config.update.call_count == wandb.config.update.call_count == mlflow.log_params.call_count == 1


def test_without_the_word_no_library_is_called(tmp_path: Path, libraries: dict[str, MagicMock]) -> None:
    train(load("digits", [*TINY, f"out={tmp_path / 'run'}"]), "qkv train digits")
    assert [module.mock_calls for module in libraries.values()] == [[], [], []]


def test_tensorboard_forgets_what_was_logged_after_the_checkpoint() -> None:
    assert options_of("tensorboard", "first", None, 0) == {}
    assert options_of("tensorboard", "first", None, 8) == {"purge_step": 9}


def test_only_the_first_process_starts_any(tmp_path: Path) -> None:
    for is_main_process in (False, True):
        process = MagicMock(is_main_process=is_main_process)
        start_trackers(process, recipe_of(tracker="wandb"), tmp_path, {}, 0)
        assert process.init_trackers.called == is_main_process


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_library_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf"^{name} is not installed; .* 'qkv\[{name}\]'$"):
        check_trackers(recipe_of(tracker=name))


def test_an_unknown_tracker_is_answered_with_those_there_are() -> None:
    with raises_sentence("tracker='wand'", "did you mean 'wandb'?"):
        check_trackers(recipe_of(tracker="tensorboard,wand"))


def test_settings_are_plain_values_without_folders_of_this_machine(tmp_path: Path) -> None:
    data = tmp_path / "own.csv"
    data.touch()
    recipe = recipe_of(data=str(data), out=str(tmp_path / "a"), model={"encoder": {"layers": 2}, "act": "relu"})
    told = settings(recipe)
    assert all(isinstance(value, str | int | float) for value in told.values()) and str(tmp_path) not in str(told)
    assert (told["data"], told["out"], told["model.act"], told["model.encoder"]) == (
        "own.csv", "a", "relu", '{"layers": 2}',
    )  # fmt: skip
    assert told["text.vocab_size"] == 2048 and told["learning_rate"] == 1e-3 and "init" not in told
