"""Signals: the first ends a training after its step, with the state saved; the third ends it at once."""

import os
import signal
import threading
from pathlib import Path

import pytest

from qkv.scripts import cli
from qkv.scripts.training import checkpoint
from qkv.scripts.training.checkpoint import fill
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.signals import SIGNALS, Interrupted, SignalHandler
from tiny_training import go, result


def kill_myself(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_two_signals_are_recorded_and_the_third_is_raised(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    found: list[str] = []
    before = {name: signal.signal(name, lambda *_: found.append("before")) for name in SIGNALS}
    try:
        with SignalHandler(speaks=True) as handler:
            assert handler.number is None
            for _ in range(2):
                kill_myself(number)
                assert handler.number == number and found == []
            kill_myself(number)
            assert found == ["before"]
        kill_myself(number)
        assert found == ["before", "before"]
    finally:
        for name, old in before.items():
            signal.signal(name, old)
    assert capfd.readouterr().err.count("qkv: ") == 3


def test_handlers_come_back_and_other_threads_have_none() -> None:
    before, found = [signal.getsignal(number) for number in SIGNALS], []
    with SignalHandler():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in SIGNALS] == before

    def enter() -> None:
        with SignalHandler():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [before[0]]


def signal_in_step(number: int, patch: pytest.MonkeyPatch) -> None:
    """Send SIGTERM in the middle of a step."""
    step = Loop.step

    def signalled(loop: Loop, *arguments: object) -> object:
        if loop.done == number - 1:
            kill_myself()
        return step(loop, *arguments)

    patch.setattr(Loop, "step", signalled)


def test_training_stops_saved_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a second signal comes while the state is saved."""

    def signalled(*arguments: object) -> None:
        fill(*arguments)
        kill_myself()

    folder = tmp_path / "run"
    go(tmp_path / "whole", save_every=None)
    with monkeypatch.context() as patch:
        signal_in_step(7, patch)
        patch.setattr(checkpoint, "fill", signalled)
        with pytest.raises(Interrupted, match="step 7") as interrupted:
            go(folder, out=str(folder), save_every=None)
    assert interrupted.value.status == 128 + 15
    assert [path.name for path in (folder / "checkpoints").glob("step-*")] == ["step-000007"]
    assert go(folder, save_every=None).endswith("step-000007")
    assert result(folder) == result(tmp_path / "whole")
    signal_in_step(10, monkeypatch)
    assert go(tmp_path / "late") == ""  # in the last step there is nothing to stop


@pytest.mark.parametrize(("fields", "words"), [({}, "out={}"), ({"resume": "never"}, "out={} resume=auto")])
def test_missing_words_of_the_next_command_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict, words: str
) -> None:
    signal_in_step(2, monkeypatch)
    with pytest.raises(Interrupted, match=words.format(tmp_path / "run")):
        go(tmp_path / "run", **fields)


def test_command_returns_the_status_of_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*words: object) -> int:
        raise Interrupted("stopped at step 3", signal.SIGTERM)

    monkeypatch.setattr(cli, "dispatch", interrupted)
    assert cli.main(["train", "digits"]) == 143
