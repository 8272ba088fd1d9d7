"""The measurement: on one thread, and from ten to a thousand letters."""

import pytest
import torch

from qkv.scripts.lab.history.measure import one_core


def test_it_runs_on_one_thread_with_subnormal_numbers_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    before, flushed = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "set_flush_denormal", flushed.append)
    with one_core():
        assert torch.get_num_threads() == 1 and flushed == [True]
    assert torch.get_num_threads() == before and flushed == [True, False]
