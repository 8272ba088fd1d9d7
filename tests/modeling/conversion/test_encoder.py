"""What is peculiar to the tables of encoders over tokens."""

import pytest

import qkv
import tiny
from families import variant

BERT = {"type_vocab_size": 2, "norm_first": False, "embedding_norm": True}


def test_roberta_counts_positions_from_the_padding_id() -> None:
    official = variant("roberta", "Model", "", pad_token_id=4, max_position_embeddings=20).build()
    ours = qkv.from_transformers(official)
    assert (ours.config.position_offset, ours.config.max_position_embeddings) == (5, 15)
    assert ours.position.table.weight.shape == (20, 32)
    back = qkv.to_transformers(ours).config
    assert (back.max_position_embeddings, back.pad_token_id) == (20, 4)


def test_electras_embeddings_may_be_narrow() -> None:
    ours = qkv.from_transformers(variant("electra", "ForMaskedLM", "").build())
    assert ours.config.embedding_size == 20
    assert ours.model.embed_projection.weight.shape == (32, 20)
    assert ours.lm_head.decoder.weight is ours.model.embed_tokens.weight
    with pytest.raises(ValueError, match="embedding_size=20 would become 32"):
        qkv.to_transformers(qkv.QkvEncoderForPreTraining(tiny.encoder(**BERT, pooling="dense", embedding_size=20)))
