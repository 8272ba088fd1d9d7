"""What parts of a config are given flat, and what each keeps for itself."""

from dataclasses import fields
from pathlib import Path

import pytest

import qkv
from qkv import QkvDualEncoderConfig
from qkv.configuration import CONFIGS
from qkv.configuration.configuration_base import QkvConfig
from qkv.configuration.configuration_composite import CompositeConfig

COMPOSITES = [config_class for config_class in CONFIGS if issubclass(config_class, CompositeConfig)]


@pytest.mark.parametrize("config_class", COMPOSITES)
def test_every_part_gets_what_is_given_flat_and_keeps_what_differs(config_class: type[QkvConfig]) -> None:
    first, *others = config_class.sub_configs
    config = config_class(norm_eps=1e-3, **{first: {"norm_eps": 1e-4}})
    assert getattr(config, first).norm_eps == 1e-4
    assert {getattr(config, part).norm_eps for part in others} == {1e-3}
    assert "norm_eps" not in vars(config)
    for part, part_class in config_class.sub_configs.items():
        assert {field.name for field in fields(part_class)} <= config_class.known_fields(), part


def test_the_plan_over_devices_names_the_modules_of_the_parts() -> None:
    plan = QkvDualEncoderConfig().base_model_tp_plan
    assert {name.partition(".")[0] for name in plan} == {"text_model", "vision_model"}


SIZES = {"hidden_size": 16, "vocab_size": 60, "num_hidden_layers": 2}


@pytest.mark.parametrize("config_class", [qkv.QkvEncoderDecoderConfig, qkv.QkvSpeechEncoderDecoderConfig])
def test_sizes_that_tools_set_reach_the_parts(config_class: type, tmp_path: Path) -> None:
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
    assert pair.text_config.vocab_size == 70
    assert detection.encoder.hidden_size == detection.decoder.hidden_size == 16
    assert detection.decoder.num_hidden_layers == detection.num_hidden_layers == 3
