"""The task of a saved model follows from its class; no config makes opening it dangerous."""

import json
from pathlib import Path

import pytest

import qkv
from errors import raises_sentence
from qkv.scripts.prediction.source import open_source


@pytest.mark.parametrize(
    ("config", "architecture", "task", "trained_as"),
    [
        (qkv.QkvEncoderConfig, "QkvEncoderForMaskedLM", "fill-mask", "QkvForMaskedLM"),
        (qkv.QkvPairConfig, "QkvPairForMaskedLM", "fill-mask", "QkvForMaskedLM"),
        (qkv.QkvPairConfig, "QkvPairForTokenClassification", "token-classification", "QkvForTokenClassification"),
        (qkv.QkvPairConfig, "QkvPairForContactPrediction", "contact-prediction", "QkvPairForContactPrediction"),
        (qkv.QkvEncoderConfig, "QkvEncoderForContactPrediction", "contact-prediction", "QkvEncoderForContactPrediction"),
    ],
)  # fmt: skip
def test_the_task_of_a_class(
    tmp_path: Path, config: type[qkv.QkvPairConfig], architecture: str, task: str, trained_as: str
) -> None:
    config(architectures=[architecture]).save_pretrained(tmp_path)
    source = open_source(str(tmp_path))
    assert (source.task, source.architecture) == (task, trained_as)


@pytest.mark.parametrize("architecture", ["QkvPairModel", "QkvPairForDistancePrediction"])
def test_a_class_without_a_task(tmp_path: Path, architecture: str) -> None:
    qkv.QkvPairConfig(architectures=[architecture]).save_pretrained(tmp_path)
    with raises_sentence(f"is {architecture}, which has no task here", "contact-prediction"):
        open_source(str(tmp_path))


def test_a_stock_model_whose_config_names_a_kernel_is_not_opened(tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "attn_implementation": "evil/kernel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with raises_sentence('attn_implementation="evil/kernel"'):
        open_source(str(tmp_path))
