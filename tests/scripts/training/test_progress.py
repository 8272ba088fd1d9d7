"""What shows the progress: lines where the output is a file, bars on a terminal and in a notebook."""

import io
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fake_clock import FakeClock
from qkv.scripts.training import progress
from qkv.scripts.training.progress import (
    LONGEST,
    SHORTEST,
    Lines,
    NotebookBar,
    Silent,
    TerminalBar,
    duration,
    filled,
)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 100), st.integers(1, 3000), st.integers(0, 50))
def test_lines_are_few_and_never_long_apart(seconds: float, total: int, first: int) -> None:
    clock, out = FakeClock(), io.StringIO()
    lines, times = Lines(total + first, clock), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", out)
        lines.update(first, "")
        with lines:
            for step in range(first + 1, first + total + 1):
                clock.now += seconds
                before = len(out.getvalue())
                lines.update(step, "loss 1.0")
                times += [clock.now] if len(out.getvalue()) > before else []
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert times[0] == pytest.approx(seconds) and times[-1] == clock.now
    assert all(gap >= SHORTEST - 1e-6 for gap in gaps[:-1]) and all(gap <= LONGEST + seconds + 1e-6 for gap in gaps)
    said = out.getvalue().splitlines()
    assert said[-1].startswith(f"qkv: step {total + first} of {total + first}  loss 1.0") and "0:00:00 left" in said[-1]
    left = round((total - 1) * seconds)
    assert f"  {duration(left)} left" in said[0] or total == 1, "from the speed of this process alone"


def test_a_duration_reads_as_a_clock() -> None:
    assert [duration(seconds) for seconds in (0, 61, 3600 * 25 + 59)] == ["0:00:00", "0:01:01", "25:00:59"]


def test_a_notebook_has_a_bar_that_needs_no_widgets(capsys: pytest.CaptureFixture[str]) -> None:
    bar = NotebookBar("digits", 4)
    bar.update(2, "")  # what an earlier process took
    with bar:
        bar.update(3, "loss 1.0")
        bar.update(4, "loss 0.5")
    shown = capsys.readouterr().err
    assert "digits: 100%" in shown and "4/4" in shown and "loss 0.5" in shown


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with TerminalBar("digits", 4, Console(file=out, force_terminal=True, width=100)) as bar:
        bar.update(4, "loss 0.5")
    assert "digits" in out.getvalue() and "4/4" in out.getvalue() and "loss 0.5" in out.getvalue()


def test_a_terminal_of_80_columns_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    parts = [f"validation metric_{number} 0.1234" for number in range(5)]
    with TerminalBar("translate-recurrent", 240000, Console(file=out, force_terminal=True, width=80)) as bar:
        bar.update(120000, "  ".join(parts))
        bar.update(240000, "  ".join(parts))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80 and any("240000/240000" in line and " steps/s " in line for line in lines)
    assert all(any(part in line for line in lines) for part in parts)


def test_lines_of_a_file_are_filled_to_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    parts = [f"validation metric_{number} 0.1234" for number in range(5)]
    with Lines(240000, clock) as lines:
        clock.now += 1
        lines.update(1, "  ".join(parts))
    said = capsys.readouterr().err.splitlines()
    assert max(map(len, said)) <= 80 and len(said) == 3
    assert said[0].startswith("qkv: step 1 of") and all(line.startswith("     v") for line in said[1:])
    assert all(any(part in line for line in said) for part in [*parts, "1 steps/s", "66:39:59 left"])


def test_a_part_that_is_longer_than_a_line_has_its_own() -> None:
    assert filled(["a", "b" * 9, "", "c", "d"], 5, " ") == ["a", " " + "b" * 9, " c  d"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"force_terminal": True}, TerminalBar), ({"force_jupyter": True}, NotebookBar), ({"file": io.StringIO()}, Lines)],
)
def test_each_place_has_its_own(fields: dict, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "Console", lambda **options: Console(**fields))
    assert isinstance(progress.progress_display("digits", 4, is_main=True), kind)
    assert isinstance(progress.progress_display("digits", 4, is_main=False), Silent)


def test_the_last_step_is_printed_again_only_with_something_new(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(2, clock=lambda: 0.0)
    with lines:
        for step, state in ((1, "a"), (2, "b"), (2, "b"), (2, "c")):
            lines.update(step, state)
    assert [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()] == ["a", "b", "c"]
