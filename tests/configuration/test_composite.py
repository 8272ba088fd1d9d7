"""Fields of a config with parts: shared where they are given flat, kept apart where a part has them."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import qkv
import tiny
from qkv import QkvDecoderConfig, QkvEncoderDecoderConfig
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_decoder import ConvolutionConfig, ExpertsConfig
from qkv.configuration.configuration_stack import BranchConfig

COMPOSITES = [config_class for config_class in CONFIGS if config_class.sub_configs]
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}
# Fields that are saved where they are set.
MIXTURE = {field.name for kind in (ExpertsConfig, ConvolutionConfig) for field in fields(kind)} - {
    field.name for field in fields(BranchConfig)
}
MIXTURE |= {"attention_sinks"}
each_composite = pytest.mark.parametrize("config_class", COMPOSITES, ids=lambda kind: kind.__name__)


@each_composite
def test_every_part_gets_what_is_given_flat_and_keeps_what_differs(config_class: type[QkvConfig]) -> None:
    first, *others = config_class.sub_configs
    differences = {"norm_eps": 1e-4}
    config = config_class(norm_eps=1e-3, **{first: differences})
    assert getattr(config, first).norm_eps == 1e-4 and differences == {"norm_eps": 1e-4}
    parts = {part: getattr(config, part) for part in config_class.sub_configs}
    whole = config_class(**parts)
    assert all(getattr(whole, part) is own for part, own in parts.items())
    assert {getattr(config, part).norm_eps for part in others} == {1e-3}
    assert "norm_eps" not in vars(config)


@each_composite
def test_saved_parts_are_full_and_change_on_loading(config_class: type[QkvConfig], tmp_path: Path) -> None:
    config_class(residual_dropout=0.3).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert not {"hidden_size", "residual_dropout", "num_hidden_layers"} & {*saved}
    for part, part_class in config_class.sub_configs.items():
        ours = {field.name for field in fields(part_class)} - {field.name for field in fields(QkvConfig)} - MIXTURE
        assert ours <= {*saved[part]} and saved[part]["model_type"] == part_class.model_type
        config = config_class.from_pretrained(tmp_path, **{part: {"attention_dropout": 0.2}})
        assert (getattr(config, part).attention_dropout, getattr(config, part).residual_dropout) == (0.2, 0.3)
        own = part_class.from_pretrained(tmp_path)
        assert type(own) is part_class and own.residual_dropout == 0.3


def test_flat_fields_of_an_encoder_decoder() -> None:
    config = QkvEncoderDecoderConfig(
        **SMALL,
        position="rope",
        rope_theta=7.0,
        pad_token_id=3,
        initializer_range=0.1,
        type_vocab_size=2,
        scale_logits=True,
        encoder={"num_hidden_layers": 3},
        decoder={"num_attention_heads": 4},
    )
    encoder, decoder = config.encoder, config.decoder
    assert (encoder.num_hidden_layers, decoder.num_hidden_layers) == (3, 2)
    assert (encoder.num_attention_heads, decoder.num_attention_heads) == (2, 4)
    for part in (encoder, decoder):
        assert (part.hidden_size, part.vocab_size, part.pad_token_id, part.initializer_range) == (8, 11, 3, 0.1)
        assert part.rope_parameters == {"rope_type": "default", "rope_theta": 7.0}
    assert decoder.cross_attention and decoder.scale_logits and encoder.type_vocab_size == 2
    assert not {"rope_theta", "type_vocab_size", "scale_logits"} & {*vars(config)}
    # The whole speaks for its decoder.
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == (8, 11, 2)
    assert config.get_text_config(decoder=True) is config.get_text_config() is decoder
    assert QkvDecoderConfig().get_text_config(decoder=True).model_type == "qkv_decoder"


def test_defaults_of_parts() -> None:
    pair, detector = qkv.QkvDualEncoderConfig(), qkv.QkvDetectionConfig(num_queries=7, num_channels=1)
    assert pair.text_config.causal and not pair.vision_config.causal
    assert (pair.text_config.frontend, pair.vision_config.frontend) == ("tokens", "patches")
    assert not detector.encoder.final_norm and detector.decoder.final_norm and not detector.decoder.norm_first
    assert detector.decoder.max_position_embeddings == detector.num_queries == 7
    saved = detector.encoder.backbone_config
    assert (
        saved["out_features"] == ["stage4"]
        and saved["num_channels"] == 1
        and detector.encoder.frontend == "feature_map"
    )
    assert qkv.QkvDetectionConfig(backbone_config=None).encoder.frontend == "patches"
    speech = tiny.speech_encoder_decoder(decoder={"max_position_embeddings": 20, "num_hidden_layers": 3})
    assert (speech.max_source_positions, speech.max_target_positions, speech.decoder_layers) == (48, 20, 3)


SIZES = {"hidden_size": 16, "vocab_size": 60, "num_hidden_layers": 2}


@pytest.mark.parametrize("config_class", [QkvEncoderDecoderConfig, qkv.QkvSpeechEncoderDecoderConfig])
def test_sizes_that_tools_set_reach_the_parts(config_class: Any, tmp_path: Path) -> None:
    config = config_class(num_attention_heads=2)
    encoder = config.encoder.vocab_size
    for name, value in SIZES.items():
        setattr(config, name, value)
        assert getattr(config, name) == getattr(config.decoder, name) == value
    assert config.d_model == config.encoder.hidden_size == 16 and config.num_attention_heads == 2
    assert config.encoder.vocab_size == (60 if config.share_embeddings else encoder)
    config.save_pretrained(tmp_path)
    assert config_class.from_pretrained(tmp_path).to_dict() == config.to_dict()
    assert config_class.from_pretrained(tmp_path, vocab_size=70).decoder.vocab_size == 70


def test_sizes_that_tools_set_in_other_composites() -> None:
    pair, detection = qkv.QkvDualEncoderConfig(), qkv.QkvDetectionConfig(num_attention_heads=2)
    pair.vocab_size, detection.hidden_size, detection.num_hidden_layers = 70, 16, 3
    assert pair.text_config.vocab_size == 70 and detection.decoder.num_hidden_layers == 3
    assert detection.encoder.hidden_size == detection.decoder.hidden_size == 16


def test_soft_prompts_find_the_sizes_of_the_decoder(tmp_path: Path) -> None:
    config = QkvEncoderDecoderConfig(**SMALL, encoder={"num_attention_heads": 4, "num_hidden_layers": 3})
    found = config.to_dict()
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [found[name] for name in sizes] == [8, 2, 2, 2, 4]
    assert QkvEncoderDecoderConfig.from_dict(found).to_dict() == QkvEncoderDecoderConfig(**found).to_dict() == found
    config.decoder.num_attention_heads = config.num_hidden_layers = 1
    assert (config.to_dict()["num_attention_heads"], config.to_dict()["num_hidden_layers"]) == (1, 1)
    config.save_pretrained(tmp_path)
    assert not {*sizes} & {*json.loads((tmp_path / "config.json").read_text())}


def test_a_shared_table_has_one_shape() -> None:
    config = QkvEncoderDecoderConfig(**SMALL, embedding_size=4)
    assert config.encoder.embedding_width == config.decoder.embedding_width == config.decoder.output_width == 4
    assert QkvEncoderDecoderConfig(**SMALL, share_embeddings=False, encoder={"vocab_size": 7}).vocab_size == 11
