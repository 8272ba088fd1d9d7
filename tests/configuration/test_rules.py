"""Fields that contradict each other are refused by one sentence that names them, on construction, edit, use and loading."""

from pathlib import Path
from typing import Any, get_args

import pytest
from transformers import GPT2Config

import qkv
import tables
from errors import raises_sentence
from qkv import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig, QkvEncoderModel
from qkv.configuration.axes import STATE_KERNELS, BiasPositionName

RULES = [(getattr(qkv, name), *row) for name, rows in tables.beside(__file__).items() for row in rows]
# What no YAML says: tuples, and configs of another class.
RULES += [
    (qkv.QkvImageEncoderConfig, {"grid": (2, 2)}, "grid=(2, 2) | QkvImageEncoderConfig"),
    (qkv.QkvImageEncoderConfig, {"image_size": (8, 8, 3)}, "image_size=(8, 8, 3) | int | list[int] | tuple[int, int]"),
    (qkv.QkvDualEncoderConfig, {"vision_config": QkvDecoderConfig()}, "vision_config | QkvDecoderConfig"),
    (qkv.QkvDualEncoderConfig, {"text_config": QkvEncoderConfig()}, "text_config | QkvEncoderConfig"),
]
SCORES = [{"position": word} for word in (*get_args(BiasPositionName), "xpos")]
SCORES += [{"pattern": "row"}, {"attention_dropout": 0.1}, {"attention_multiplier": 1.0}]
RULES += [
    (QkvDecoderConfig, {"kernel": kernel, **fields}, f"kernel={kernel!r} | {name}={value!r}")
    for kernel in STATE_KERNELS
    for fields in SCORES
    for name, value in fields.items()
]
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("config_class", "fields", "mentions"), RULES, ids=lambda value: getattr(value, "__name__", str(value)[:60])
)
def test_contradictions_are_one_sentence(config_class: type, fields: dict[str, Any], mentions: str) -> None:
    with raises_sentence(*mentions.split(" | ")) as caught:
        config_class(**fields)
    assert caught.value.__cause__ is None


def test_an_edited_config_is_checked_by_model_and_save(tmp_path: Path) -> None:
    config = QkvEncoderConfig(**SMALL)
    config.num_attention_heads = 3
    for use in (lambda: QkvEncoderModel(config), lambda: config.save_pretrained(tmp_path)):
        with raises_sentence("num_attention_heads=3", "num_key_value_heads=2"):
            use()
    config = QkvEncoderConfig(**SMALL)
    config.position = "rope"
    with raises_sentence("rope_type=''", "default, linear"):
        QkvEncoderModel(config)


def test_layer_types_may_be_said_again() -> None:
    """As tools do that shorten a model."""
    config = QkvDecoderConfig(num_hidden_layers=3, pattern="full")
    config.num_hidden_layers = 1
    config.layer_types = ["full_attention"]
    with raises_sentence("layer_types=['sliding_attention']"):
        config.layer_types = ["sliding_attention"]


def test_a_folder_of_another_model(tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path)
    for config_class in (QkvDecoderConfig, QkvEncoderDecoderConfig):
        with raises_sentence("model_type='gpt2'", config_class.__name__, repr(config_class.model_type), "AutoConfig"):
            config_class.from_pretrained(tmp_path)


def test_changes_on_loading_are_checked_together(tmp_path: Path) -> None:
    QkvEncoderConfig().save_pretrained(tmp_path)
    with raises_sentence("num_attention_heads=12", "num_key_value_heads=5"):
        QkvEncoderConfig.from_pretrained(tmp_path, num_key_value_heads=5)
    QkvEncoderDecoderConfig().save_pretrained(tmp_path)
    with raises_sentence("residual_dropout", "QkvEncoderDecoderConfig"):
        QkvEncoderDecoderConfig.from_pretrained(tmp_path, residual_dropout=0.2)
