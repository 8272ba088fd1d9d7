"""A config converts when there and back again changes nothing: the test itself, and configs as they were published."""

from typing import Any

import pytest
from transformers import CONFIG_MAPPING, AutoConfig

import qkv
import tables
import tiny
from qkv.modeling.conversion.config import (
    BOOKKEEPING,
    Architecture,
    Codec,
    Conversion,
    Head,
    canonical,
    different,
    flat,
    nested,
    same_names,
)
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


@pytest.mark.parametrize(
    "make", [tiny.encoder, tiny.image_encoder, tiny.decoder, tiny.encoder_decoder, tiny.dual_encoder]
)
def test_nested_undoes_flat(make: Any) -> None:
    config = make()
    values = {name: value for name, value in flat(config).items() if name.rpartition(".")[2] not in BOOKKEEPING}
    again = type(config)(**nested(values, config.sub_configs))
    assert different(values, flat(again)) == []


def test_layers_that_are_alike_are_one_pattern() -> None:
    alike = flat(tiny.decoder("llama", pattern=["sliding", "sliding"], sliding_window=3))
    assert alike["pattern"] == "sliding"
    mixed = flat(tiny.decoder("llama", pattern=["sliding", "full"], sliding_window=3))
    assert mixed["pattern"] == ["sliding", "full"]


def test_a_field_nobody_knows_is_named() -> None:
    conversion, config = found("bert", "BertForMaskedLM", {"whatever": 3, "unset": None})
    assert conversion.lost_on_reading(config) == ["whatever=3 is unknown there"]


def test_fields_of_one_name_need_no_row() -> None:
    same = same_names(qkv.QkvEncoderDecoderConfig, CONFIG_MAPPING["bart"])
    assert same["use_cache"] == "use_cache" and same["decoder.attention_dropout"] == "attention_dropout"
    assert not {"encoder.use_cache", "is_encoder_decoder", "encoder", "decoder.hidden_size"} & same.keys()
    assert same_names(qkv.QkvDecoderConfig, CONFIG_MAPPING["gpt2"])["hidden_size"] == "n_embd"
    same = same_names(qkv.QkvDualEncoderConfig, CONFIG_MAPPING["clip"])
    assert same["vision_config.patch_size"] == "vision_config.patch_size" and "text_config" not in same


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


def test_equal_values_have_one_spelling() -> None:
    assert canonical([4, 4]) == canonical((4, 4)) == 4 and canonical((4, 6)) == [4, 6]
    assert canonical("swish") == canonical("silu") and canonical("gelu") != canonical("gelu_new")
    assert canonical({"a": 1, "partial_rotary_factor": 1.0}) == {"a": 1}
    assert canonical({"partial_rotary_factor": 0.5}) == {"partial_rotary_factor": 0.5}
    assert canonical(None) is None and canonical([]) == []


def test_a_codec_reads_and_writes_with_all_other_fields_in_sight() -> None:
    fields = {"hidden_size": Codec("d_model", lambda value, theirs: value * theirs["num_heads"], lambda value, ours: 8)}
    architecture = Architecture("t5", qkv.QkvDecoderConfig, fields, {"position": "none"}, (), ())
    conversion = Conversion(architecture, Head("Model", words={"norm": "rms"}))
    config = conversion.read(AutoConfig.for_model("t5", d_model=4, num_heads=3))
    assert (conversion.ours, conversion.theirs) == ("QkvDecoderModel", "T5Model")
    assert (config.hidden_size, config.position, config.norm) == (12, "none", "rms")
    assert conversion.write(config).d_model == 8
