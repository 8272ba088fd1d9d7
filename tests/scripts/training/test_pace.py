"""Checkpoints by the clock: what a kill may lose, and what saving may cost, at any speed of steps."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_clock import FakeClock
from qkv.scripts.training.checkpoint import Checkpoints
from qkv.scripts.training.loop import Loop
from qkv.scripts.training.pace import SHARE, SavePace
from tiny_training import manager, take_steps

LIMIT = 180.0


def simulate(
    step: float, evaluation: float, every: int, save: float, steps: int, known: dict[str, float] | None = None
) -> tuple[list[float], float, float]:
    """Take steps of these durations: the most that a kill could lose by each save, the seconds of saving and of all."""
    clock = FakeClock()
    pace = SavePace(LIMIT, clock)
    lost, saving, began = [], 0.0, 0.0
    pace.seconds |= known or {}
    for number in range(1, steps + 1):
        due = pace.due(sum(ahead % every == 0 for ahead in (number, number + 1)))
        clock.now += step
        if number % every == 0:
            with pace.timed("evaluation"):
                clock.now += evaluation
        if due:
            state = clock.now
            with pace.timed("save"):
                clock.now += save
            lost.append(clock.now - began)
            began, saving = state, saving + save
    return [*lost, clock.now - began], saving, clock.now


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 20), st.floats(0, 40), st.integers(1, 200), st.floats(0, 1))
def test_a_kill_loses_at_most_the_limit(step: float, evaluation: float, every: int, save: float) -> None:
    lost, _, whole = simulate(step, evaluation, every, save, steps=int(2000 / step))
    assert max(lost) <= LIMIT + 2 * evaluation + save and whole > 5 * LIMIT
    known = {"evaluation": evaluation, "save": save}
    lost, _, _ = simulate(step, evaluation, every, save, int(2000 / step), known)
    assert max(lost) <= LIMIT, "once an evaluation and a save were timed"


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 20), st.floats(0, 40), st.integers(1, 200), st.floats(0, 300))
def test_saving_takes_a_few_percent_of_the_time(step: float, evaluation: float, every: int, save: float) -> None:
    _, saving, whole = simulate(step, evaluation, every, save, steps=int(2000 / step))
    assert saving <= SHARE * whole + 2 * save, "but for the first, which nobody has timed"


def test_without_a_limit_nothing_is_due() -> None:
    clock = FakeClock()
    pace = SavePace(None, clock)
    clock.now = 1e9
    assert not pace.due()


@pytest.mark.parametrize("killed", range(1, 11))
def test_a_killed_training_resumes_at_most_the_limit_earlier(
    killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes a minute, and three may be lost: nothing else asks for a checkpoint."""
    found, clock, step = manager(tmp_path, save_every=None, eval_every=100), FakeClock(), Loop.step

    def timed(loop: Loop, *arguments: object) -> object:
        clock.now += 60
        if loop.done == killed - 1:
            raise SystemExit
        return step(loop, *arguments)

    monkeypatch.setattr(Loop, "step", timed)
    found.pace = SavePace(LIMIT, clock)
    with pytest.raises(SystemExit):
        take_steps(found)
    newest, _ = Checkpoints(tmp_path / "checkpoints").newest()
    assert 0 <= 60 * (killed - (newest or 0)) <= LIMIT
