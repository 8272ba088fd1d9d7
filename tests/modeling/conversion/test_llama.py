"""What is peculiar to the tables of Llama and its kin."""

import pytest
import transformers

import qkv
import tiny
from families import variant
from families.base import rope


def test_rope_parameters_are_copied_whole() -> None:
    official = variant("llama", "ForCausalLM", "", **rope("yarn", beta_fast=16.0, mscale=0.7)).build()
    ours = qkv.from_transformers(official)
    assert ours.config.rope_parameters == official.config.rope_parameters
    assert ours.config.rope_parameters is not official.config.rope_parameters
    assert qkv.to_transformers(ours).config.rope_parameters == official.config.rope_parameters


def test_a_partial_rotation_has_no_llama() -> None:
    rotation = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}
    with pytest.raises(ValueError, match="partial_rotary_factor"):
        qkv.to_transformers(qkv.QkvDecoderModel(tiny.decoder("llama", rope_parameters=rotation)))


@pytest.mark.parametrize(
    ("fields", "class_name"),
    [
        ({}, "LlamaForCausalLM"),
        ({"attention_bias": True, "mlp_bias": True}, "LlamaForCausalLM"),
        ({"pattern": "sliding", "sliding_window": 3}, "MistralForCausalLM"),
        ({"pattern": ["sliding", "sliding"], "sliding_window": 3}, "MistralForCausalLM"),
    ],
)
def test_a_window_makes_mistral(fields: dict, class_name: str) -> None:
    fields = {"attention_bias": False, "mlp_bias": False, **fields}
    stock = qkv.to_transformers(qkv.QkvDecoderForCausalLM(tiny.decoder("llama", **fields)))
    assert type(stock) is getattr(transformers, class_name)
    assert getattr(stock.config, "sliding_window", None) == fields.get("sliding_window")


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


@pytest.mark.parametrize(
    ("fields", "class_name"),
    [
        ({"attention_bias": ["q_proj", "k_proj", "v_proj"]}, "Qwen2ForCausalLM"),
        ({"attention_bias": False, "query_key_norm": True}, "Qwen3ForCausalLM"),
        ({"attention_bias": True, "query_key_norm": True}, "Qwen3ForCausalLM"),
        (
            {"query_key_norm": True, "pattern": ["full", "sliding"], "sliding_window": 3},
            "Qwen3ForCausalLM",
        ),
    ],
)
def test_biases_and_norms_make_qwens(fields: dict, class_name: str) -> None:
    stock = qkv.to_transformers(qkv.QkvDecoderForCausalLM(tiny.decoder("llama", mlp_bias=False, **fields)))
    assert type(stock).__name__ == class_name


def test_qwen2_has_heads_of_any_width() -> None:
    official = variant("qwen2", "Model", "", head_dim=6).build()
    ours = qkv.from_transformers(official)
    assert ours.config.head_dim == qkv.to_transformers(ours).config.head_dim == 6
