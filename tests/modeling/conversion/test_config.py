"""A config converts when there and back again changes nothing: the test itself, and configs as they were published."""

from typing import Any

import pytest
from transformers import AutoConfig

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
    matters,
    nested,
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
    skipped = {"classifier_dropout", "pooling_dropout"}
    wanted = {field: value for field, value in preset.items() if matters(field, preset) and field not in skipped}
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


def test_what_says_nothing_does_not_matter() -> None:
    ours = flat(tiny.encoder_decoder("t5"))
    assert matters("encoder.relative_attention_num_buckets", ours)
    assert not matters("encoder.block_size", ours) and not matters("decoder.position_offset", ours)
    assert matters("decoder.position_offset", flat(tiny.encoder_decoder("bart")))
    assert matters("decoder.position_offset", flat(tiny.encoder_decoder("marian")))  # a wave has a start as well
    assert not matters("decoder.attention_multiplier", ours) and not matters("encoder.pad_token_id", ours)


def test_a_class_is_asked_only_for_what_it_reads() -> None:
    """An unset `head_act` is the layers' activation in one head and tanh in another."""
    fields = {"norm_first": False, "embedding_norm": True, "type_vocab_size": 2, "position_offset": 2}
    config = tiny.encoder(**fields, pooling="mean", hidden_act="relu", qa_dropout=0.1, classifier_dropout=0.3)
    roberta = [each for each in CONVERSIONS if each.model_type == "roberta"]
    lost = {each.theirs: each.lost_on_writing(config) for each in roberta}
    assert lost["RobertaForMaskedLM"] == ["head_act='relu' would become 'gelu'"]
    assert lost["RobertaForTokenClassification"] == []
    assert lost["RobertaForQuestionAnswering"] == ["qa_dropout=0.1 would become 0.0"]
    assert "pooling='mean' would become 'dense'" in lost["RobertaForSequenceClassification"]
    config.update({"pooling": "dense", "pooling_dropout": 0.3, "head_act": "tanh"})
    lost = {each.theirs: each.lost_on_writing(config) for each in roberta}
    assert lost["RobertaForSequenceClassification"] == []
    assert lost["RobertaForMaskedLM"] == ["head_act='tanh' would become 'gelu'"]


def test_equal_values_have_one_spelling() -> None:
    assert canonical([4, 4]) == canonical((4, 4)) == 4 and canonical((4, 6)) == [4, 6]
    assert canonical("swish") == canonical("silu") and canonical("gelu") != canonical("gelu_new")
    assert canonical({"a": 1, "partial_rotary_factor": 1.0}) == {"a": 1}
    assert canonical({"partial_rotary_factor": 0.5}) == {"partial_rotary_factor": 0.5}
    assert canonical(None) is None and canonical([]) == []


def test_a_codec_reads_and_writes_with_all_other_fields_in_sight() -> None:
    fields = {"hidden_size": Codec("d_model", lambda value, theirs: value * theirs["num_heads"], lambda value, ours: 8)}
    architecture = Architecture("t5", "T5", qkv.QkvDecoderConfig, fields, {"position": "none"}, (), ())
    conversion = Conversion(architecture, Head("Model", words={"norm": "rms"}))
    config = conversion.read(AutoConfig.for_model("t5", d_model=4, num_heads=3))
    assert (conversion.ours, conversion.theirs) == ("QkvDecoderModel", "T5Model")
    assert (config.hidden_size, config.position, config.norm) == (12, "none", "rms")
    assert conversion.write(config).d_model == 8
