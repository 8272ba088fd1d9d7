"""A decoder's own fields: vocabulary, scales, cross-attention, special tokens."""

from dataclasses import fields

import pytest

from qkv import QkvDecoderConfig
from qkv.configuration.configuration_stack import StackConfig

DEFAULTS = {
    "vocab_size": 50257,
    "scale_embedding": False,
    "scale_logits": False,
    "lm_head_bias": False,
    "cross_attention": False,
    "classifier_dropout": 0.0,
    "label_smoothing": 0.0,
    "use_cache": True,
    "tie_word_embeddings": True,
    "pad_token_id": None,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}


def test_defaults() -> None:
    inherited = {field.name for field in fields(StackConfig)}
    assert {field.name: field.default for field in fields(QkvDecoderConfig) if field.name not in inherited} == DEFAULTS


@pytest.mark.parametrize(
    ("given", "special"),
    [
        ({}, (50256, 50256)),
        ({"vocab_size": 50256}, (None, None)),
        ({"vocab_size": 9, "eos_token_id": 2}, (None, 2)),
        ({"vocab_size": 9, "bos_token_id": 1, "eos_token_id": [2, 3]}, (1, [2, 3])),
    ],
)
def test_default_special_tokens_stay_inside_the_vocabulary(given: dict, special: tuple) -> None:
    config = QkvDecoderConfig(**given)
    assert (config.bos_token_id, config.eos_token_id) == special


def test_constants_of_the_family_are_not_saved() -> None:
    saved = QkvDecoderConfig().to_dict()
    assert (QkvDecoderConfig.frontend, QkvDecoderConfig.type_vocab_size) == ("tokens", 0)
    assert not {"frontend", "type_vocab_size", "causal"} & set(saved)


def test_a_decoder_is_its_own_text_config() -> None:
    config = QkvDecoderConfig()
    assert config.get_text_config(decoder=True) is config
