"""A config converts when there and back again changes nothing: the test itself, and configs as they were published."""

from typing import Any

import pytest
from transformers import AutoConfig

import qkv
import tables
import tiny
from qkv.modeling.conversion.config import BOOKKEEPING, Conversion, different, flat
from qkv.modeling.conversion.convert import CONVERSIONS, attempted

TABLES = tables.beside(__file__)
PUBLISHED, OFFICIAL = TABLES["published"], TABLES["official"]


def found(model_type: str, class_name: str, fields: dict[str, Any]) -> tuple[Conversion, Any]:
    """The conversion that loses least of a config."""
    config = AutoConfig.for_model(model_type, **fields)
    conversions = [each for each in CONVERSIONS if (each.model_type, each.theirs) == (model_type, class_name)]
    return min(conversions, key=lambda each: attempted(each.lost_on_reading, config)), config


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_lose_nothing(name: str) -> None:
    conversion, config = found(*PUBLISHED[name])
    assert conversion.lost_on_reading(config) == []
    assert conversion.lost_on_writing(conversion.read(config)) == []


@pytest.mark.parametrize("name", OFFICIAL)
def test_presets_are_the_official_configs(name: str) -> None:
    conversion, config = found(*OFFICIAL[name])
    preset = flat(getattr(qkv.presets, name)())
    # Classifiers are fine-tuned later, with dropouts of their own.
    skipped = BOOKKEEPING | {"classifier_dropout", "pooling_dropout"}
    wanted = {field: value for field, value in preset.items() if field.rpartition(".")[2] not in skipped}
    assert different(wanted, flat(conversion.read(config))) == []


def test_a_field_nobody_knows_is_named() -> None:
    conversion, config = found("bert", "BertForMaskedLM", {"whatever": 3, "unset": None})
    assert conversion.lost_on_reading(config) == ["whatever=3 is unknown there"]


def test_a_head_need_not_hold_what_it_does_not_read() -> None:
    fields = {"norm_first": False, "embedding_norm": True, "type_vocab_size": 2, "position_offset": 2}
    config = tiny.encoder(**fields, pooling="mean", hidden_act="relu", qa_dropout=0.1, classifier_dropout=0.3)
    roberta = [each for each in CONVERSIONS if each.model_type == "roberta"]
    lost = {each.theirs: each.lost_on_writing(config) for each in roberta}
    assert lost["RobertaForTokenClassification"] == ["qa_dropout=0.1 would become 0.0"]
    assert "pooling='mean' would become 'dense'" in lost["RobertaForSequenceClassification"]
    assert "head_act=None would become 'gelu'" in lost["RobertaForMaskedLM"]
    config.update({"pooling": "dense", "pooling_dropout": 0.3, "qa_dropout": 0.0})
    lost = {each.theirs: each.lost_on_writing(config) for each in roberta}
    assert lost["RobertaForSequenceClassification"] == lost["RobertaForTokenClassification"] == []
