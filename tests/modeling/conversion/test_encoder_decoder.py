"""What is peculiar to the encoder-decoders' tables."""

import pytest
import torch
import transformers

import qkv
import tiny
from families import variant

BIASED = [("marian", "MTModel"), *((name, "ForConditionalGeneration") for name in ("bart", "mbart", "pegasus"))]


@pytest.mark.parametrize(("architecture", "head"), BIASED)
def test_only_a_bias_that_adds_something_becomes_one(architecture: str, head: str) -> None:
    official = variant(architecture, head, "").build()
    ours = qkv.from_transformers(official)
    assert ours.config.decoder.lm_head_bias
    assert torch.equal(ours.lm_head.bias, official.final_logits_bias[0])
    official.final_logits_bias.zero_()
    ours = qkv.from_transformers(official)
    assert not ours.config.decoder.lm_head_bias and ours.lm_head.bias is None
    assert torch.equal(qkv.to_transformers(ours).final_logits_bias, official.final_logits_bias)


@pytest.mark.parametrize(
    ("projection", "feed_forward", "act"),
    [
        ("relu", "mlp", "relu"),
        ("gelu", "mlp", "gelu"),
        ("gated-gelu", "glu", "gelu_new"),
        ("gated-silu", "glu", "silu"),
    ],
)
def test_t5_names_gate_and_activation_in_one_word(projection: str, feed_forward: str, act: str) -> None:
    ours = qkv.from_transformers(variant("t5", "Model", "", feed_forward_proj=projection).build())
    for stack in (ours.config.encoder, ours.config.decoder):
        assert (stack.feed_forward, stack.hidden_act) == (feed_forward, act)
    assert qkv.to_transformers(ours).config.feed_forward_proj == projection


def test_t5s_first_matrix_is_the_gate() -> None:
    official = variant("t5", "Model", "", feed_forward_proj="gated-gelu").build()
    theirs, ours = official.decoder.block[1].layer[2].DenseReluDense, qkv.from_transformers(official)
    mlp = ours.decoder.layers[1].mlp
    assert torch.equal(mlp.gate_proj.weight, theirs.wi_0.weight) and torch.equal(mlp.up_proj.weight, theirs.wi_1.weight)


@pytest.mark.parametrize("tied", [None, False])
def test_t5_scales_what_it_ties(tied: bool | None) -> None:
    """v1.0 scales before its head and v1.1 does not; whether the head is the table, the weights say."""
    fields = {} if tied is None else {"tie_word_embeddings": tied}
    official = variant("t5", "ForConditionalGeneration", "", **fields).build()
    if tied is False:
        official.lm_head.weight = torch.nn.Parameter(torch.randn_like(official.lm_head.weight))
    ours = qkv.from_transformers(official)
    assert ours.config.decoder.scale_logits == ours.config.tie_word_embeddings == (tied is None)
    back = qkv.to_transformers(ours)
    assert (back.lm_head.weight is back.shared.weight) == (tied is None)
    assert torch.equal(back.lm_head.weight, official.lm_head.weight)
    assert back.config.scale_decoder_outputs == official.config.scale_decoder_outputs


def test_t5_starts_with_padding_unless_told() -> None:
    config = variant("t5", "Model", "").config()
    del config.decoder_start_token_id
    assert qkv.from_transformers(transformers.T5Model(config)).config.decoder_start_token_id == config.pad_token_id


def test_stacks_may_differ_in_depth_heads_and_width() -> None:
    ours = qkv.from_transformers(variant("bart", "Model", "").build()).config
    assert (ours.encoder.num_hidden_layers, ours.decoder.num_hidden_layers) == (3, 2)
    assert (ours.encoder.num_attention_heads, ours.decoder.num_attention_heads) == (4, 2)
    assert (ours.encoder.intermediate_size, ours.decoder.intermediate_size) == (48, 40)


def test_two_vocabularies_stay_two() -> None:
    fields = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 65}
    ours = qkv.from_transformers(variant("marian", "MTModel", "", **fields).build())
    assert not ours.config.share_embeddings and ours.config.tie_word_embeddings
    assert ours.model.encoder.embed_tokens.weight.shape[0] == 61
    assert ours.lm_head.weight is ours.model.decoder.embed_tokens.weight and ours.lm_head.out_features == 65


@pytest.mark.parametrize(("architecture", "head"), [("marian", "MTModel"), ("pegasus", "ForConditionalGeneration")])
def test_positions_of_a_formula_are_computed_not_stored(architecture: str, head: str) -> None:
    official = variant(architecture, head, "").build()
    ours = qkv.from_transformers(official)
    assert not [name for name in ours.state_dict() if "position" in name]
    with torch.no_grad():
        official.model.decoder.embed_positions.weight.add_(0.1)
    with pytest.raises(ValueError, match="not the sinusoidal table"):
        qkv.from_transformers(official)


def test_the_layout_of_the_paper_has_no_marian() -> None:
    config = tiny.encoder_decoder("transformer", share_embeddings=True)
    with pytest.raises(ValueError, match="position='sinusoidal' would become 'sinusoidal_concat'"):
        qkv.to_transformers(qkv.QkvEncoderDecoderModel(config))


@pytest.mark.parametrize("head", ["ForConditionalGeneration", "EncoderModel", "ForTokenClassification"])
def test_mt5_is_t5_without_a_scale(head: str) -> None:
    """Nothing in its weights or its config tells the two apart, so what comes back is T5."""
    official = variant("mt5", head, "").build()
    ours = qkv.from_transformers(official)
    back = qkv.to_transformers(ours)
    assert type(back).__name__ == f"T5{head}"
    if head == "ForConditionalGeneration":
        assert not ours.config.decoder.scale_logits and not back.config.scale_decoder_outputs


def test_t5s_encoder_alone_is_an_encoder() -> None:
    official = variant("t5", "EncoderModel", "").build()
    ours = qkv.from_transformers(official)
    assert type(ours) is qkv.QkvEncoderModel and ours.config.num_hidden_layers == official.config.num_layers == 3
    assert not ours.config.is_encoder_decoder and ours.config.pooling == "first"
    assert qkv.to_transformers(ours).config.num_decoder_layers == 3  # of what is not there


@pytest.mark.parametrize("prefix", ["T5", "Bart"])
def test_the_classifier_is_two_maps(prefix: str) -> None:
    official = variant(prefix.lower(), "ForSequenceClassification", "").build()
    ours = qkv.from_transformers(official)
    assert ours.config.classifier_dropout == ours.dropout.p == 0.25
    assert torch.equal(ours.dense.weight, official.classification_head.dense.weight)
    assert torch.equal(ours.classifier.bias, official.classification_head.out_proj.bias)


def test_mbart_starts_with_a_language() -> None:
    official = variant("mbart", "ForConditionalGeneration", "").build()
    ours = qkv.from_transformers(official)
    assert official.config.decoder_start_token_id is None
    assert ours.config.decoder_start_token_id == official.config.bos_token_id and ours.config.start_with_last_token
    labels = torch.tensor([[5, 6, 3, 9], [7, 3, 8, -100]])
    theirs = transformers.models.mbart.modeling_mbart.shift_tokens_right(labels, official.config.pad_token_id)
    assert torch.equal(ours.prepare_decoder_input_ids_from_labels(labels), theirs)


def test_m2m100_counts_positions_from_the_padding_id() -> None:
    official = variant("m2m_100", "Model", "", pad_token_id=4).build()
    ours = qkv.from_transformers(official)
    assert ours.config.encoder.position_offset == ours.config.decoder.position_offset == 5
    assert not [name for name in (*ours.state_dict(), *official.state_dict()) if "position" in name]
    assert qkv.to_transformers(ours).config.pad_token_id == 4
    ours.config.encoder.position_offset = 3
    with pytest.raises(ValueError, match="position_offset=3 would become 5|pad_token_id=4 would become 2"):
        qkv.to_transformers(ours)
