"""The measurement: on one thread, and from ten to a thousand letters."""

import pytest
import torch

from qkv.scripts.lab.history.measure import SIZES, one_core
from qkv.scripts.lab.history.quality import Curriculum


def test_it_runs_on_one_thread_with_subnormal_numbers_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    before, flushed = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "set_flush_denormal", flushed.append)
    with one_core():
        assert torch.get_num_threads() == 1 and flushed == [True]
    assert torch.get_num_threads() == before and flushed == [True, False]


def test_the_whole_goes_from_ten_to_a_thousand() -> None:
    full = SIZES["full"]
    for lengths in (full.test_lengths, full.timed_lengths):
        assert (min(lengths), max(lengths)) == (10, 1000)
    assert set(full.training_lengths) < set(full.test_lengths)
    # Test sources are drawn from seeds below those of training: their lengths.
    assert max(full.test_lengths) < Curriculum(1.0, full.training_lengths, full.batch_tokens, 3e-3, 0).first_seed
