"""A signal ends a training after the step it is in, with everything saved, as two do; a third ends it at once."""

import os
import signal
import threading
from pathlib import Path

import pytest

import tiny_training
from qkv.scripts import cli
from qkv.scripts.training import checkpoint
from qkv.scripts.training.checkpoint import fill
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.signals import SAID, Interrupted, SignalHandler
from tiny_training import go, manager, result


def kill_myself(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_two_signals_are_noted_and_the_third_does_what_it_did(number: int) -> None:
    found = []
    before = {name: signal.signal(name, lambda *_: found.append("before")) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        with SignalHandler() as interrupt:
            assert interrupt.number is None
            for _ in range(2):
                kill_myself(number)
                assert interrupt.number == number and found == []
            kill_myself(number)
            assert found == ["before"]
        kill_myself(number)
        assert found == ["before", "before"]
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def test_without_a_signal_everything_is_as_it_was() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with SignalHandler():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_outside_the_main_thread_signals_are_left_to_others() -> None:
    found = []

    def enter() -> None:
        with SignalHandler() as interrupt:
            found.append(interrupt.number)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [None]


def signal_in_step(number: int, patch: pytest.MonkeyPatch) -> None:
    """SIGTERM in the middle of a step."""
    step = Loop.step

    def signalled(loop: Loop, *arguments: object) -> object:
        if loop.done == number - 1:
            kill_myself(signal.SIGTERM)
        return step(loop, *arguments)

    patch.setattr(Loop, "step", signalled)


def test_what_each_signal_does_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SignalHandler(speaks=True):
            for _ in range(3):
                kill_myself(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    said = [line for line in capfd.readouterr().err.splitlines() if line]
    assert said == [f"qkv: {sentence}" for sentence in SAID]


def test_a_second_signal_while_the_state_is_saved_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(tmp_path / "whole", save_every=None)
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_in_step(7, patch)

        def signalled(*arguments: object) -> None:
            fill(*arguments)
            kill_myself(signal.SIGTERM)

        patch.setattr(checkpoint, "fill", signalled)
        with pytest.raises(Interrupted, match="stopped at step 7"):
            go(folder, out=str(folder), save_every=None)
    assert go(folder, save_every=None).endswith("step-000007") and result(folder) == result(tmp_path / "whole")


@pytest.mark.parametrize("background", [False, True])
def test_a_training_stops_saved_after_the_step_and_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    fields = {"save_every": None, "async_save": background}
    go(tmp_path / "whole", **fields)
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_in_step(7, patch)
        with pytest.raises(Interrupted) as interrupted:
            go(folder, out=str(folder), **fields)
    assert str(interrupted.value) == "stopped at step 7; the same command resumes from there"
    assert interrupted.value.status == 128 + 15
    assert [path.name for path in (folder / "checkpoints").glob("step-*")] == ["step-000007"]
    assert go(folder, **fields).endswith("step-000007")
    assert result(folder) == result(tmp_path / "whole")


@pytest.mark.parametrize(
    ("fields", "words"),
    [({}, "with out={} resumes"), ({"resume": "never"}, "with out={} resume=auto resumes")],
)
def test_what_the_next_command_needs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict, words: str
) -> None:
    signal_in_step(2, monkeypatch)
    with pytest.raises(Interrupted) as interrupted:
        go(tmp_path / "run", **fields)
    assert f"the same command {words.format(tmp_path / 'run')} from there" in str(interrupted.value)


def test_a_signal_in_the_last_step_comes_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_in_step(10, monkeypatch)
    go(tmp_path / "run")
    found = manager(tmp_path / "run")
    found.resume()
    assert found.loop.done == tiny_training.RECIPE.optimization.max_steps


def test_the_command_says_so_and_returns_what_shells_expect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: object) -> int:
        raise Interrupted("stopped at step 3", signal.SIGTERM)

    monkeypatch.setattr(cli, "dispatch", interrupted)
    assert cli.main(["train", "digits"]) == 143
    assert capsys.readouterr().err == "qkv: stopped at step 3\n"
