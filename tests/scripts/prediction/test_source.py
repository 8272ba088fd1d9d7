"""The task of a saved model follows from its class."""

from pathlib import Path

import pytest

import qkv
from qkv.scripts.prediction.source import has_task


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
