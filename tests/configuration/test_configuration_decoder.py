"""A decoder's own fields: vocabulary, scales, cross-attention, special tokens."""

from dataclasses import fields

from qkv import QkvDecoderConfig
from qkv.configuration.configuration_stack import StackConfig

DEFAULTS = {
    "vocab_size": 50257,
    "scale_embedding": False,
    "embedding_size": None,
    "scale_logits": False,
    "lm_head_bias": False,
    "cross_attention": False,
    "classifier_dropout": 0.0,
    "label_smoothing": 0.0,
    "use_cache": True,
    "tie_word_embeddings": True,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def test_defaults() -> None:
    inherited = {field.name for field in fields(StackConfig)}
    assert {field.name: field.default for field in fields(QkvDecoderConfig) if field.name not in inherited} == DEFAULTS


def test_constants_of_the_family_are_not_saved() -> None:
    saved = QkvDecoderConfig().to_dict()
    assert (QkvDecoderConfig.frontend, QkvDecoderConfig.type_vocab_size) == ("tokens", 0)
    assert not {"frontend", "type_vocab_size", "causal"} & set(saved)


def test_a_decoder_is_its_own_text_config() -> None:
    config = QkvDecoderConfig()
    assert config.get_text_config(decoder=True) is config


def test_embeddings_are_as_wide_as_layers_unless_given() -> None:
    config = QkvDecoderConfig(hidden_size=8, num_attention_heads=2)
    assert (config.embedding_width, config.position_width, config.output_width) == (8, 8, 8)
    config = QkvDecoderConfig(hidden_size=8, num_attention_heads=2, embedding_size=4)
    assert (config.embedding_width, config.position_width, config.output_width) == (4, 8, 4)
