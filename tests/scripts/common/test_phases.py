"""What takes longer than a moment is named, and what does not is silent."""

import time

import pytest

from qkv.scripts.common import phases
from qkv.scripts.common.phases import phase


def test_what_takes_long_is_said_once_and_by_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "MOMENT", 0.0)
    with phase("reading the data"):
        time.sleep(0.05)
    assert capsys.readouterr().err == "qkv: reading the data …\n"
    monkeypatch.setenv("RANK", "1")
    with phase("reading the data"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_what_takes_a_moment_or_fails_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "MOMENT", 0.2)
    with phase("nothing"):
        pass
    with pytest.raises(ZeroDivisionError), phase("a mistake"):
        _ = 1 / 0
    time.sleep(0.3)
    assert capsys.readouterr().err == ""
