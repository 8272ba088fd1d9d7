"""`scripts/lab/overhead.py`: bare steps train the same weights as those of the loop, and a difference is an error."""

import re
from argparse import Namespace
from typing import Any

import pytest
import torch

from qkv.scripts.lab import overhead
from qkv.scripts.lab.__main__ import main

WORDS = ["overhead", "digits", "--rounds", "2", "accumulate=2", "model.hidden_size=8", "model.num_hidden_layers=1"]


def test_both_steps_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    assert re.search(r"loop / bare .* \d\.\d+ \(\d+\.\d+ to \d+\.\d+\)", capsys.readouterr().out)


def test_other_weights_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heavier(overhead.BareStep):
        def __call__(self) -> Any:
            with torch.no_grad():
                next(self.model.parameters()).add_(1e-3)
            return super().__call__()

    monkeypatch.setattr(overhead, "BareStep", Heavier)
    with pytest.raises(RuntimeError, match="differs by"):
        overhead.run(Namespace(recipe="digits", rounds=2, overrides=WORDS[4:]))
