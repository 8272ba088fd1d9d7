"""What takes longer than a moment is named, and what does not is silent."""

import threading

import pytest

from qkv.scripts.common import phases
from qkv.scripts.common.phases import phase


def timers() -> set[threading.Timer]:
    return {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}


def test_what_takes_long_is_said_once_and_by_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "MOMENT", 0.0)
    for rank, said in (("0", "qkv: reading the data …\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        with phase("reading the data"):
            for timer in timers():
                timer.join()  # the moment is over
        assert capsys.readouterr().err == said


def test_what_takes_a_moment_or_fails_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    # A timer that was cancelled takes a while to end.
    ending, waiting = timers(), set()
    with phase("nothing"):
        waiting |= timers() - ending
    with pytest.raises(ZeroDivisionError), phase("a mistake"):
        waiting |= timers() - ending
        _ = 1 / 0
    assert len(waiting) == 2
    for timer in waiting:
        timer.join(timeout=60)
        assert not timer.is_alive(), "it would speak an hour later"
    assert capsys.readouterr().err == ""
