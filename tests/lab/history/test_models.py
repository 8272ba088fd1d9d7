"""Contenders: one each of 2014, 2015 and 2017, of one size, that start alike from a seed and read the same letters."""

import pytest
import torch
from torch import nn

from qkv.scripts.lab.history import models as module
from qkv.scripts.lab.history.models import ATTENTION, END, FIRST, LEARNED, RNN, TRANSFORMER, build_models, reversals


def test_each_is_what_its_name_says() -> None:
    models = build_models(8, seed=0)
    assert models[RNN].config.attention == "none" and not models[RNN].config.bidirectional
    assert models[ATTENTION].config.attention == "additive" and models[ATTENTION].config.bidirectional
    for name, position in ((TRANSFORMER, "sinusoidal"), (LEARNED, "learned")):
        assert models[name].config.encoder.position == models[name].config.decoder.position == position
        assert not any(isinstance(module, nn.RNNBase) for module in models[name].modules())


def test_a_seed_is_a_start() -> None:
    first, again, other = (build_models(8, seed)[RNN].lm_head.weight for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_contenders_of_different_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.ALL, RNN, lambda width: module.COMPARED[RNN](2 * width))
    with pytest.raises(RuntimeError, match="differ by more than a tenth; change the width"):
        build_models(8, seed=0)


def test_targets_are_the_letters_from_last_to_first() -> None:
    batch = reversals(3, 5, torch.Generator().manual_seed(0))
    assert batch["input_ids"].shape == batch["labels"].shape == (3, 6)
    assert torch.equal(batch["labels"][:, :5], batch["input_ids"][:, :5].flip(1))
    assert bool((batch["input_ids"][:, 5] == END).all()) and bool((batch["labels"][:, 5] == END).all())
    assert int(batch["input_ids"][:, :5].min()) >= FIRST
