"""The task of a saved model follows from its class; no config makes opening it dangerous."""

import json
from pathlib import Path

import pytest

import qkv
from errors import raises_sentence
from qkv.scripts.prediction.source import has_task, open_source


@pytest.mark.parametrize(
    ("config", "architecture", "task"),
    [
        (qkv.QkvEncoderConfig, "QkvEncoderForMaskedLM", True),
        (qkv.QkvPairConfig, "QkvPairForMaskedLM", True),
        (qkv.QkvPairConfig, "QkvPairForContactPrediction", False),
    ],
)
def test_a_command_is_advised_where_it_knows_the_task(
    tmp_path: Path, config: type[qkv.QkvPairConfig], architecture: str, task: bool
) -> None:
    config(architectures=[architecture]).save_pretrained(tmp_path)
    assert has_task(tmp_path) is task


def test_a_stock_model_whose_config_names_a_kernel_is_not_opened(tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "attn_implementation": "evil/kernel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with raises_sentence('attn_implementation="evil/kernel"'):
        open_source(str(tmp_path))
