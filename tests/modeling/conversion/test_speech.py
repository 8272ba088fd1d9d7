"""What is peculiar to the tables of audio encoders and their decoders."""

import copy

import pytest
import torch
from test_parity import assert_identical

import qkv
from families import variant


def test_sinusoids_of_whispers_encoder_are_rows_of_a_table_whatever_they_are() -> None:
    official = variant("whisper", "Model", "").build()
    with torch.no_grad():
        official.encoder.embed_positions.weight.add_(torch.randn(11, 32))
    ours = qkv.from_transformers(official)
    assert torch.equal(ours.encoder.position.table.weight, official.encoder.embed_positions.weight)
    back = qkv.to_transformers(ours)
    assert_identical(back, official)


def test_whispers_keys_have_no_bias_and_a_model_with_one_is_refused() -> None:
    ours = qkv.from_transformers(variant("whisper", "ForConditionalGeneration", "").build())
    attention = ours.model.decoder.layers[0].cross_attn
    assert attention.k_proj.bias is None and attention.q_proj.bias is not None
    config = copy.deepcopy(ours.config)
    config.decoder.attention_bias = True
    with pytest.raises(ValueError, match="decoder.attention_bias=True would become"):
        qkv.to_transformers(qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(config))


def test_embeddings_of_whisper_are_never_scaled() -> None:
    ours = qkv.from_transformers(variant("whisper", "Model", "", scale_embedding=True).build())
    assert not ours.config.encoder.scale_embedding and not ours.config.decoder.scale_embedding


def test_spec_augment_comes_along() -> None:
    fields = {"apply_spec_augment": True, "mask_time_prob": 0.3, "mask_feature_prob": 0.1, "mask_time_length": 4}
    ours = qkv.from_transformers(variant("whisper", "Model", "", **fields).build())
    assert {name: getattr(ours.config.encoder, name) for name in fields} == fields
    back = qkv.to_transformers(ours).config
    assert {name: getattr(back, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"pad_token_id": 0}, "pad_token_id=0 hides every frame of sound from the encoder's positions"),
        ({"conv_channels": 27}, "conv_channels=27 cannot be halved by a gate"),
        ({"input_channels": 2}, "input_channels=2"),
    ],
)
def test_what_speech2text_cannot_mean_is_refused(fields: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        qkv.from_transformers(variant("speech_to_text", "Model", "", **{"conv_channels": 28, **fields}).build())
