"""What is peculiar to the decoders' tables."""

import pytest
import torch
import transformers

import qkv
import tiny
from families import variant
from families_base import rope


def test_gpt2_keeps_query_key_and_value_side_by_side() -> None:
    official = variant("gpt2", "LMHeadModel", "").build()
    attention = qkv.from_transformers(official).model.layers[1].self_attn
    fused = official.transformer.h[1].attn.c_attn
    for projection, weight, bias in zip(
        (attention.q_proj, attention.k_proj, attention.v_proj),
        fused.weight.split(32, 1),
        fused.bias.split(32),
        strict=True,
    ):
        assert torch.equal(projection.weight, weight.T) and torch.equal(projection.bias, bias)


def test_gpt2s_inner_width_is_four_times_its_own_unless_set() -> None:
    assert qkv.from_transformers(variant("gpt2", "Model", "", n_inner=None).build()).config.intermediate_size == 128
    assert qkv.from_transformers(variant("gpt2", "Model", "").build()).config.intermediate_size == 48


@pytest.mark.parametrize("scaled", [True, False])
def test_gpt2_may_leave_scores_unscaled(scaled: bool) -> None:
    ours = qkv.from_transformers(variant("gpt2", "Model", "", scale_attn_weights=scaled).build())
    assert ours.config.attention_multiplier == (None if scaled else 1.0)
    assert qkv.to_transformers(ours).config.scale_attn_weights == scaled


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
        ({"attention_patterns": ["sliding", "sliding"], "sliding_window": 3}, "MistralForCausalLM"),
    ],
)
def test_a_window_makes_mistral(fields: dict, class_name: str) -> None:
    fields = {"attention_bias": False, "mlp_bias": False, **fields}
    stock = qkv.to_transformers(qkv.QkvDecoderForCausalLM(tiny.decoder("llama", **fields)))
    assert type(stock) is getattr(transformers, class_name)
    assert getattr(stock.config, "sliding_window", None) == fields.get("sliding_window")


def test_dropout_before_labels_is_a_tenth_unless_set() -> None:
    assert qkv.from_transformers(variant("gpt2", "ForTokenClassification", "").build()).dropout.p == 0.1
    official = variant("llama", "ForTokenClassification", "", classifier_dropout=0.4).build()
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == 0.4
