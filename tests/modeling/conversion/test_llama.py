"""What is peculiar to the tables of Llama and its kin."""

import pytest

import qkv
from families import variant
from families.base import rope


def test_rope_parameters_are_copied_whole() -> None:
    official = variant("llama", "ForCausalLM", "", **rope("yarn", beta_fast=16.0, mscale=0.7)).build()
    ours = qkv.from_transformers(official)
    assert ours.config.rope_parameters == official.config.rope_parameters
    assert ours.config.rope_parameters is not official.config.rope_parameters
    assert qkv.to_transformers(ours).config.rope_parameters == official.config.rope_parameters


WINDOWS = {"use_sliding_window": True, "sliding_window": 4}
SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({}, "full"),
        ({**WINDOWS, "max_window_layers": 2}, "full"),
        ({**WINDOWS, "max_window_layers": 1}, ["full", "sliding"]),
        ({**WINDOWS, "max_window_layers": 0}, "sliding"),
        ({**WINDOWS, "layer_types": [SLIDING, FULL]}, ["sliding", "full"]),
        ({"sliding_window": 4, "max_window_layers": 0}, "full"),
    ],
)
def test_qwens_windows_are_patterns(fields: dict, pattern: str | list[str]) -> None:
    official = variant("qwen2", "ForCausalLM", "", **fields).build()
    ours = qkv.from_transformers(official).config
    assert (ours.pattern, ours.sliding_window) == (pattern, official.config.sliding_window)
    back = qkv.to_transformers(qkv.from_transformers(official)).config
    for name in ("layer_types", "sliding_window", "use_sliding_window"):
        assert getattr(back, name) == getattr(official.config, name)
