"""What is peculiar to the encoder-decoders' tables."""

import pytest
import torch
import transformers

import qkv
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


def test_m2m100_counts_positions_from_the_padding_id() -> None:
    official = variant("m2m_100", "Model", "", pad_token_id=4).build()
    ours = qkv.from_transformers(official)
    assert ours.config.encoder.position_offset == ours.config.decoder.position_offset == 5
    assert not [name for name in (*ours.state_dict(), *official.state_dict()) if "position" in name]
    assert qkv.to_transformers(ours).config.pad_token_id == 4
    ours.config.encoder.position_offset = 3
    with pytest.raises(ValueError, match="position_offset=3 would become 5|pad_token_id=4 would become 2"):
        qkv.to_transformers(ours)
