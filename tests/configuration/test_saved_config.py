"""A saved config names no code and no other weights; only a person may choose them."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from errors import raises_sentence
from qkv import QkvEncoderConfig
from qkv.configuration.saved_config import check_saved_config


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
    for read in (AutoConfig.from_pretrained, QkvEncoderConfig.from_pretrained, check_saved_config):
        with raises_sentence(said):
            read(config if read is check_saved_config else tmp_path)


def test_what_torch_has_may_be_read_and_anything_typed(tmp_path: Path) -> None:
    config = {**QkvEncoderConfig().to_dict(), "attn_implementation": "eager", "transformers_weights": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert AutoConfig.from_pretrained(tmp_path)._attn_implementation == "eager"
    typed = AutoConfig.from_pretrained(tmp_path, attn_implementation="my/kernel")
    assert typed._attn_implementation == "my/kernel"
