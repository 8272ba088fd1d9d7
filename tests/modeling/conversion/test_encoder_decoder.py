"""What is peculiar to the encoder-decoders' tables."""

import pytest
import torch

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


def test_m2m100_counts_positions_from_the_padding_id() -> None:
    official = variant("m2m_100", "Model", "", pad_token_id=4).build()
    ours = qkv.from_transformers(official)
    assert ours.config.encoder.position_offset == ours.config.decoder.position_offset == 5
    assert not [name for name in (*ours.state_dict(), *official.state_dict()) if "position" in name]
    assert qkv.to_transformers(ours).config.pad_token_id == 4
    ours.config.encoder.position_offset = 3
    with pytest.raises(ValueError, match="position_offset=3 would become 5|pad_token_id=4 would become 2"):
        qkv.to_transformers(ours)
