"""The state of a training: random numbers, tied weights and the best evaluation continue."""

import random
from math import nan
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import qkv
from qkv.scripts.recipes.schema import Output
from qkv.scripts.training.early_stopping import LOWER_IS_BETTER, EarlyStopping, check_metric
from qkv.scripts.training.state import capture, restore, rng_state, seed, set_rng_state
from tiny_training import manager


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()]


def test_random_numbers_continue() -> None:
    draws()
    state = rng_state()
    expected = draws()
    assert draws() != expected
    set_rng_state(state)
    assert draws() == expected
    found = []
    for numbers in ((0, 4, 1), (0, 4, 2), (0, 5, 1), (0, 4, 1)):  # of steps and processes
        seed(*numbers)
        found.append(tuple(draws()))
    assert len(set(found)) == 3 and found[0] == found[3]


def tied() -> nn.Module:
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
    return qkv.QkvDecoderForCausalLM(qkv.QkvDecoderConfig(tie_word_embeddings=True, **small))


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path: Path) -> None:
    tensors, facts = capture(manager(tmp_path, tied()).loop)
    assert "lm_head.weight" not in tensors["model.safetensors"]
    expected = {name: value.clone() for name, value in tensors["model.safetensors"].items()}
    other = manager(tmp_path, tied(), seed=1).loop
    restore(other, {**tensors, "model.safetensors": expected}, facts)
    assert other.model.lm_head.weight is other.model.model.embed_tokens.weight
    assert all(torch.equal(other.model.state_dict()[name], value) for name, value in expected.items())


# Early stopping -------------------------------------------------------------------------------------------------------

FALLING = [(name, [2.0, 3.0, 1.0], [True, False, True]) for name in LOWER_IS_BETTER]


@pytest.mark.parametrize(
    ("name", "values", "better"),
    [
        ("accuracy", [0.5, 0.7, 0.7, 0.9], [True, True, False, True]),
        ("loss", [nan, nan, 1.0, nan, 0.5], [True, True, True, False, True]),
        *FALLING,
    ],
)
def test_best_is_remembered_and_a_tie_is_not_better(name: str, values: list[float], better: list[bool]) -> None:
    stopping = EarlyStopping(f"validation {name}", patience=2)
    found = [stopping.update(step, {"validation": {name: value}}) for step, value in enumerate(values, 1)]
    assert found == better and (stopping.best, stopping.step) == (values[-1], len(values))
    assert stopping.waited == 0 and not stopping.should_stop
    latest = EarlyStopping()
    assert all(latest.update(step, {"validation": {name: value}}) for step, value in enumerate(values, 1))
    assert latest.step == len(values) and latest.best_step is None


def test_of_equal_evaluations_the_lowest_loss_is_best() -> None:
    stopping = EarlyStopping("validation accuracy")
    values = [(0.9, 1.0), (0.9, 0.5), (0.9, 0.6), (0.9, nan), (0.8, 0.1)]
    found = [stopping.update(step, {"validation": {"accuracy": a, "loss": b}}) for step, (a, b) in enumerate(values, 1)]
    assert found == [True, True, False, False, False] and stopping.step == 2


@pytest.mark.parametrize("metric", ["test accuracy", "accuracy", "val loss"])
def test_metrics_that_are_not_evaluated_are_refused(metric: str) -> None:
    with pytest.raises(ValueError, match=f"watch='{metric}'.*validation"):
        check_metric(Output(watch=metric), ["validation", "test"])
    check_metric(Output(watch="validation loss"), ["validation", "test"])
    with pytest.raises(ValueError, match="average=3.*watch='validation loss'"):
        check_metric(Output(watch="validation loss", average=3), ["validation", "test"])
    with pytest.raises(ValueError, match="watch='validation f1'.*validation accuracy"):
        EarlyStopping("validation f1").update(1, {"validation": {"accuracy": 0.5}})
