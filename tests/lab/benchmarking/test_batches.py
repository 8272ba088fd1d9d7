"""Batches: shares of padding are those asked for, the same seed draws the same, labels are of real tokens."""

import pytest
import torch

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.lab.benchmarking.batches import SPECIAL, batch, lengths, real_tokens
from qkv.scripts.lab.benchmarking.contenders import stock_model
from tiny_workloads import RUN, WORKLOADS, tiny

PADDED = sorted(name for name, workload in WORKLOADS.items() if workload.real < 1)


@pytest.mark.parametrize(("rows", "longest", "real"), [(32, 128, 0.49), (12, 128, 0.45), (4, 512, 0.61), (64, 64, 0.9)])
@pytest.mark.parametrize("seed", range(5))
def test_lengths_have_the_share_that_is_asked_for(rows: int, longest: int, real: float, seed: int) -> None:
    drawn = lengths(rows, longest, real, torch.Generator().manual_seed(seed))
    assert drawn.max() == longest and drawn.min() >= 2
    assert abs(drawn.float().mean() / longest - real) < 0.02


@pytest.mark.parametrize("name", RUN)
def test_a_seed_draws_the_same_batch(name: str) -> None:
    workload = tiny(name)
    config = stock_model(workload, 0, torch.device("cpu"), torch.float32).config
    one, same, other = (batch(workload, config, seed) for seed in (0, 0, 1))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_where_the_mask_says(name: str) -> None:
    workload = WORKLOADS[name]
    config = stock_model(tiny(name), 0, torch.device("cpu"), torch.float32).config
    inputs = batch(workload, config, 0)
    real = real_tokens(workload, inputs)
    if workload.model.reads == "pairs":
        assert real is None or abs(real.float().mean() - workload.target_real) < 0.02
    else:
        assert torch.equal(real, inputs["attention_mask"].bool())
    assert abs(inputs["attention_mask"].float().mean() - workload.real) < 0.02
    assert (inputs["input_ids"][~inputs["attention_mask"].bool()] == config.pad_token_id).all()
    assert (inputs["input_ids"][inputs["attention_mask"].bool()] >= SPECIAL - 1).all()


def test_only_real_tokens_are_masked() -> None:
    workload = tiny("mlm-train-small-128")
    inputs = batch(workload, stock_model(workload, 0, torch.device("cpu"), torch.float32).config, 0)
    labelled = inputs["labels"] != IGNORED
    assert 0 < labelled.sum() < inputs["attention_mask"].sum()
    assert (inputs["attention_mask"][labelled] == 1).all() and (inputs["input_ids"][labelled] == SPECIAL - 1).all()
