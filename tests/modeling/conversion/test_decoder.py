"""What is peculiar to the tables of decoders with layer norms."""

import pytest

import qkv
from families import variant


def test_bloom_has_code_for_eager_attention_alone() -> None:
    ours = qkv.from_transformers(variant("bloom", "ForCausalLM", "").build())
    ours.set_attn_implementation("sdpa")
    assert qkv.to_transformers(ours).config._attn_implementation == "eager"


@pytest.mark.parametrize("length", [None, 100])
def test_bloom_remembers_the_length_it_was_trained_at(length: int | None) -> None:
    ours = qkv.from_transformers(variant("bloom", "Model", "", seq_length=length).build())
    assert ours.config.max_position_embeddings == (length or 2048)
    assert qkv.to_transformers(ours).config.seq_length == (length or 2048)
