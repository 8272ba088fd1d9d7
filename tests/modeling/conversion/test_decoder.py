"""What is peculiar to the tables of decoders with layer norms."""

import pytest
import torch

import qkv
import tiny
from families import variant


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


def test_dropout_before_labels_is_a_tenth_unless_set() -> None:
    assert qkv.from_transformers(variant("gpt2", "ForTokenClassification", "").build()).dropout.p == 0.1
    official = variant("gpt_neox", "ForTokenClassification", "", classifier_dropout=0.4).build()
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == 0.4


@pytest.mark.parametrize("dropout", [None, 0.4])
def test_blooms_dropout_before_labels_is_that_of_its_layers_unless_set(dropout: float | None) -> None:
    official = variant("bloom", "ForTokenClassification", "", classifier_dropout=dropout).build()
    ours = qkv.from_transformers(official)
    assert ours.dropout.p == official.dropout.p == qkv.to_transformers(ours).dropout.p == (dropout or 0.2)


@pytest.mark.parametrize(("architecture", "attention"), [("bloom", "self_attention"), ("gpt_neox", "attention")])
def test_query_key_and_value_take_turns_head_by_head(architecture: str, attention: str) -> None:
    official = variant(architecture, "Model", "").build()
    ours = qkv.from_transformers(official).layers[1].self_attn
    layers = official.h if architecture == "bloom" else official.layers
    fused = getattr(layers[1], attention).query_key_value
    for head in range(4):
        for index, projection in enumerate((ours.q_proj, ours.k_proj, ours.v_proj)):
            start = (3 * head + index) * 8
            assert torch.equal(projection.weight[8 * head : 8 * head + 8], fused.weight[start : start + 8])
            assert torch.equal(projection.bias[8 * head : 8 * head + 8], fused.bias[start : start + 8])


def test_bloom_has_code_for_eager_attention_alone() -> None:
    ours = qkv.from_transformers(variant("bloom", "ForCausalLM", "").build())
    ours.set_attn_implementation("sdpa")
    assert qkv.to_transformers(ours).config._attn_implementation == "eager"


@pytest.mark.parametrize("length", [None, 100])
def test_bloom_remembers_the_length_it_was_trained_at(length: int | None) -> None:
    ours = qkv.from_transformers(variant("bloom", "Model", "", seq_length=length).build())
    assert ours.config.max_position_embeddings == (length or 2048)
    assert qkv.to_transformers(ours).config.seq_length == (length or 2048)


@pytest.mark.parametrize(
    ("norm_first", "removed", "ends"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_opt_may_end_without_a_norm(norm_first: bool, removed: bool, ends: bool) -> None:
    fields = {"do_layer_norm_before": norm_first, "_remove_final_layer_norm": removed}
    ours = qkv.from_transformers(variant("opt", "Model", "", **fields).build())
    assert ours.config.final_norm == ends
    back = qkv.to_transformers(ours).config
    assert (back.do_layer_norm_before, back._remove_final_layer_norm) == (norm_first, removed)


@pytest.mark.parametrize("factor", [{}, {"partial_rotary_factor": 1.0}, {"partial_rotary_factor": 0.5}])
def test_neox_is_told_how_much_of_a_head_to_turn(factor: dict[str, float]) -> None:
    rotation = {"rope_type": "default", "rope_theta": 1000.0, **factor}
    ours = qkv.QkvDecoderModel(tiny.decoder(position="rope", rope_parameters=rotation))
    stock = qkv.to_transformers(ours)
    assert type(stock).__name__ == "GPTNeoXModel"
    assert stock.config.rope_parameters == {"partial_rotary_factor": 1.0, **rotation}


@pytest.mark.parametrize(
    ("fields", "class_name"),
    [
        ({"hidden_act": "relu"}, "GPT2LMHeadModel"),
        ({"hidden_act": "relu", "position_offset": 2}, "OPTForCausalLM"),
        (
            {"position": "alibi", "embedding_norm": True, "hidden_act": "gelu_bloom", "intermediate_size": 128},
            "BloomForCausalLM",
        ),
        ({"position": "rope"}, "GPTNeoXForCausalLM"),
    ],
)
def test_positions_tell_decoders_apart(fields: dict, class_name: str) -> None:
    fields = {"embedding_dropout": 0.0, "residual_dropout": 0.0, **fields}
    assert type(qkv.to_transformers(qkv.QkvDecoderForCausalLM(tiny.decoder(**fields)))).__name__ == class_name
