"""The state of a training: random numbers, tied weights and the moving average continue."""

import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import qkv
from qkv.scripts.training.state import capture, restore, rng_state, seed, set_rng_state
from tiny_training import go, manager, result


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


def tied() -> torch.nn.Module:
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


def test_average_continues(tmp_path: Path) -> None:
    go(tmp_path / "whole", ema_decay=0.9)
    go(tmp_path / "run", ema_decay=0.9)
    last = tmp_path / "run" / "checkpoints" / "step-000010"
    (last / "state.json").unlink()
    go(tmp_path / "run", ema_decay=0.9)
    assert result(tmp_path / "run") == result(tmp_path / "whole")
    average, own = (load_file(last / f"{name}.safetensors") for name in ("ema", "model"))
    assert average.keys() == own.keys() and any(not torch.equal(average[name], own[name]) for name in own)
