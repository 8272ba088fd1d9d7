"""Freezing: fields that shape the code keep the model's values, and a copy refuses others; the rest stays free."""

import ast

import pytest

import qkv
from qkv.scripts.publishing.export.constant_folding import MISSING
from qkv.scripts.publishing.export.freeze import Decisions, decided, freeze


@pytest.fixture
def llama() -> qkv.QkvDecoderConfig:
    return qkv.presets.llama_3_2_1b()


def test_words_and_switches_are_decided_and_numbers_are_free(llama: qkv.QkvDecoderConfig) -> None:
    found = decided(llama)
    assert found["position"] == ("rope",) and found["norm"] == ("rms",) and found["query_key_norm"] == (False,)
    free = "hidden_size residual_dropout vocab_size use_cache tie_word_embeddings pad_token_id id2label problem_type"
    assert not set(free.split()) & set(found)


def test_a_number_is_decided_where_it_is_not_there() -> None:
    with_scale = qkv.QkvEncoderConfig(layer_scale=0.1)
    assert decided(qkv.QkvEncoderConfig())["layer_scale"] == (None,) and "layer_scale" not in decided(with_scale)


def test_parts_that_differ_leave_a_field_open() -> None:
    config = qkv.presets.bart_base(encoder={"norm_first": True})
    found = dict(Decisions.of(config).facts)
    assert set(found["config.norm_first"]) == {True, False, MISSING} and set(found["config.causal"]) == {
        True,
        False,
        MISSING,
    }
    assert set(found["config.cross_attention"]) == {True, MISSING}  # encoders have none
    assert Decisions.of(config).differing == ["causal", "final_norm", "lm_head_bias", "norm_first"]


def test_a_word_that_one_part_has_by_its_class_is_not_gone() -> None:
    gone = Decisions.of(qkv.presets.whisper_tiny()).gone
    assert {"patches", "silenced", "gated"} <= gone and not {"tokens", "spectrogram", "heard", "plain"} & gone


def test_what_only_other_families_have_is_known_to_be_missing() -> None:
    assert dict(Decisions.of(qkv.QkvEncoderConfig()).facts)["config.cross_attention"] == (MISSING,)
    assert dict(Decisions.of(qkv.QkvDecoderConfig()).facts)["config.pooling"] == (MISSING,)


def test_patterns_of_all_layers_are_known() -> None:
    config = qkv.QkvDecoderConfig(num_hidden_layers=2, attention_patterns=["full", "sliding"], sliding_window=4)
    found = Decisions.of(config)
    assert dict(found.facts)["pattern"] == ("full", "sliding")
    assert {"block_sparse", "rope", "rms"} <= found.gone and not {"full", "sliding"} & found.gone


def test_configs_that_decide_the_same_are_one(llama: qkv.QkvDecoderConfig) -> None:
    wider = qkv.presets.llama_3_2_1b(hidden_size=64, num_key_value_heads=2, residual_dropout=0.1)
    assert Decisions.of(wider) == Decisions.of(llama) != Decisions.of(qkv.presets.llama_3_2_1b(norm_first=False))


def test_fields_are_narrowed_to_what_the_model_has(llama: qkv.QkvDecoderConfig) -> None:
    source = """\
class A(B):
    causal: ClassVar[bool] = True
    norm: NormName = "layer"
    final_norm: bool | None = None
    layer_scale: float | None = None
    hidden_size: int = at_least(1, 768)
    attention_patterns: list[PatternName] | None = None
"""
    expected = """\
class A(B):
    causal: ClassVar[bool] = True
    norm: Literal['rms'] = 'rms'
    final_norm: Literal[True] = True
    layer_scale: None = None
    hidden_size: int = at_least(1, 768)
    attention_patterns: None = None
"""
    assert freeze(source, Decisions.of(llama)) == expected
    mixed = qkv.QkvDecoderConfig(num_hidden_layers=2, attention_patterns=["full", "sliding"], sliding_window=4)
    narrowed = freeze("class A(B):\n    attention_patterns: list[PatternName] | None = None\n", Decisions.of(mixed))
    assert narrowed == "class A(B):\n    attention_patterns: list[Literal['full', 'sliding']] | None = None\n"
    ast.parse(narrowed)
