"""What is peculiar to the tables of T5 and its kin."""

import pytest
import torch
import transformers

import qkv
from families import variant


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


def test_a_local_radius_is_a_window() -> None:
    config = variant("longt5", "EncoderModel", "", local_radius=3).config()
    ours = qkv.from_transformers(transformers.LongT5EncoderModel(config))
    assert (ours.config.pattern, ours.config.sliding_window) == ("sliding", 4)
    config.encoder_attention_type = "transient-global"
    with pytest.raises(ValueError, match="transient-global"):
        qkv.from_transformers(transformers.LongT5EncoderModel(config))
