"""What is measured: each part once, on one thread, with what everything came from."""

from typing import Any

import pytest
import torch

from qkv.scripts.history import activations, gradients, measure, quality, speed
from qkv.scripts.history.contenders import ALL, CONTENDERS
from qkv.scripts.history.measure import FULL, QUICK, measured


def test_parts_go_where_they_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def steps(models: Any, *sizes: Any) -> dict[str, Any]:
        threads.append(torch.get_num_threads())
        return {name: sizes for name in models}

    monkeypatch.setattr(torch, "set_num_threads", lambda count: threads.append(-count))
    flushed: list[bool] = []
    monkeypatch.setattr(torch, "set_flush_denormal", flushed.append)
    monkeypatch.setattr(speed, "steps", steps)
    monkeypatch.setattr(speed, "layers", lambda *sizes: sizes)
    monkeypatch.setattr(activations, "activations", lambda width: width)
    monkeypatch.setattr(gradients, "by_distance", lambda models, length: (list(models), length))
    monkeypatch.setattr(quality, "teach", lambda models, lessons: (list(models), lessons.seconds))
    monkeypatch.setattr(quality, "examine", lambda model, *sizes: sizes)
    found = measured(QUICK, 5, "qkv compare-history")
    assert threads[0] == -1 and threads[1] > 0 and threads[2] < 0
    assert flushed == [True, False]
    assert (found["seed"], found["command"], found["size"]["width"]) == (5, "qkv compare-history", QUICK.width)
    assert found["steps"]["models"] == dict.fromkeys(CONTENDERS, (QUICK.timed, QUICK.work, QUICK.turns))
    assert found["layers"] == (QUICK.width, QUICK.alone, QUICK.turns) and found["activations"] == QUICK.deep
    assert found["gradients"]["untrained"] == (list(CONTENDERS), QUICK.distant)
    assert found["gradients"]["trained"] == (list(CONTENDERS), max(QUICK.lessons))
    assert found["learning"] == (list(ALL), QUICK.seconds) and list(found["models"]) == list(ALL)
    assert found["quality"][next(iter(ALL))] == [[length, (length, QUICK.letters, length)] for length in QUICK.exams]


def test_the_whole_goes_from_ten_to_a_thousand() -> None:
    for lengths in (FULL.exams, FULL.timed):
        assert (min(lengths), max(lengths)) == (10, 1000)
    assert set(FULL.lessons) < set(FULL.exams)
    # Letters of lessons are drawn from seeds above those of exams, which are their lengths.
    assert max(FULL.exams) < measure.quality.Lessons(1.0, FULL.lessons, FULL.batch, FULL.rate, 0).first_seed
