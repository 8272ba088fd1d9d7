"""`qkv doctor`: what it prints, writes and returns."""

import json
from pathlib import Path

import pytest

from qkv.scripts import doctor
from qkv.scripts.cli import main
from qkv.scripts.diagnosis.findings import Finding
from qkv.scripts.doctor import conclude

SLOW, BROKEN = (Finding(kind, f"a {kind} thing", "it matters", "mend it") for kind in ("slow", "broken"))


def test_everything_is_shown_within_the_terminal_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["doctor", "--quick", f"--json={tmp_path / 'doctor.json'}"]) == 0
    printed = capsys.readouterr().out
    titles = ("versions", "processor", "accelerators", "attention backends", "caches", "extras")
    assert all(title in printed for title in titles) and max(map(len, printed.splitlines())) <= 80
    assert "note: HF_HUB_OFFLINE" in printed and "mend: unset HF_HUB_OFFLINE" in printed
    written = json.loads((tmp_path / "doctor.json").read_text())
    assert {*titles, "findings", "rates"} == written.keys() and written["rates"] == {}
    assert written["versions"]["torch"] in printed


def test_what_is_broken_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "check_software", lambda: [SLOW, BROKEN])
    assert main(["doctor", "--quick"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "qkv: broken: a broken thing; what mends each is printed above\n"
    assert printed.out.index("broken: a broken thing.") < printed.out.index("slow: a slow thing.")


def test_the_last_line_counts_what_is_slow(capsys: pytest.CaptureFixture[str]) -> None:
    for findings in ([], [SLOW], [SLOW, SLOW]):
        conclude(findings)
    counts = [line.removeprefix("Nothing is broken, and ") for line in capsys.readouterr().out.splitlines()]
    assert counts == [f"{count} slower than need be." for count in ("nothing is", "1 thing is", "2 things are")]
