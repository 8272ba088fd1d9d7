"""Configs as the version before model types for images and sounds saved them, of the tiny models of `tiny.py`."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

import tiny
from errors import raises_sentence
from qkv import QkvEncoderConfig, QkvImageEncoderConfig
from qkv.configuration.backward_compatibility import update_saved_config

EARLIER: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("earlier_configs.json").read_text())
CASES = {case.name: case for case in tiny.CASES}
WRITTEN_ON_SAVING = {"architectures", "dtype", "transformers_version"}


@pytest.mark.parametrize("name", EARLIER)
def test_a_config_of_the_previous_version_is_the_config_of_the_same_model_today(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(EARLIER[name]))
    config, today = AutoConfig.from_pretrained(tmp_path), CASES[name].config()
    assert type(config) is type(today) and config.architectures == [CASES[name].model_class.__name__]
    for field in {field.name for field in fields(today)} - WRITTEN_ON_SAVING:
        before, now = (getattr(each, field) for each in (config, today))
        assert (before.to_dict() if hasattr(before, "to_dict") else before) == (
            now.to_dict() if hasattr(now, "to_dict") else now
        ), field
    assert config.auto_map == today.auto_map


def test_a_config_of_today_is_not_touched() -> None:
    for case in CASES.values():
        saved = case.config().to_dict()
        assert update_saved_config(saved) is saved


def test_what_the_class_cannot_compute_any_more_is_refused() -> None:
    saved = {**EARLIER["EncoderForMaskedLM-bert"], "parallel_residual": True}
    with pytest.raises(ValueError, match="parallel_residual=True is not for QkvEncoderConfig"):
        QkvEncoderConfig.from_dict(saved)


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({"attn_implementation": "evil/kernel"}, 'attn_implementation="evil/kernel"'),
        ({"_attn_implementation": "paged|evil/kernel:name"}, "_attn_implementation="),
        ({"_attn_implementation_internal": "flash_attention_2"}, "flash_attention_2"),
        ({"attn_implementation": {"": "evil/kernel"}}, "evil/kernel"),
        ({"backbone_config": {"attn_implementation": "evil/kernel"}}, "evil/kernel"),
        ({"experts_implementation": "deep-gemm"}, "deep-gemm"),
        ({"transformers_weights": "other.safetensors"}, "other.safetensors"),
    ],
)
def test_what_loads_code_or_weights_is_typed_and_not_read(saved: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = {**QkvEncoderConfig().to_dict(), **saved}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for read in (AutoConfig.from_pretrained, QkvEncoderConfig.from_pretrained, update_saved_config):
        with raises_sentence(said):
            read(config if read is update_saved_config else tmp_path)


def test_what_torch_has_may_be_read_and_anything_typed(tmp_path: Path) -> None:
    config = {**QkvEncoderConfig().to_dict(), "attn_implementation": "eager", "transformers_weights": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path)._attn_implementation == "eager"
    typed = AutoConfig.from_pretrained(tmp_path, attn_implementation="my/kernel")
    assert typed._attn_implementation == "my/kernel"


def test_changes_reach_the_class_of_today() -> None:
    saved = EARLIER["ImageEncoderForImageClassification-vit"]
    config = QkvEncoderConfig.from_dict(saved, patch_size=2)
    assert type(config) is QkvImageEncoderConfig and config.patch_size == 2


@pytest.mark.parametrize(("field", "word"), [("frontend", "pixels"), ("model_type", "qkv_vision")])
def test_a_word_that_no_version_had_is_named(field: str, word: str) -> None:
    with pytest.raises(ValueError, match=f"{field}='{word}' is not one of"):
        update_saved_config({**EARLIER["EncoderForMaskedLM-bert"], field: word})
