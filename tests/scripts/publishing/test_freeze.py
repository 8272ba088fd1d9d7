"""Freezing: fields that shape the code keep the model's values, and a copy refuses others; the rest stays free."""

import ast

import pytest

import qkv
from qkv.scripts.publishing.freeze import decided, differing, facts, freeze, words_gone
from qkv.scripts.publishing.specialise import MISSING


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
    found = facts(config)
    assert set(found["config.norm_first"]) == {True, False, MISSING} and set(found["config.causal"]) == {
        True,
        False,
        MISSING,
    }
    assert set(found["config.cross_attention"]) == {True, MISSING}  # encoders have none
    assert differing(config) == ["causal", "final_norm", "lm_head_bias", "norm_first"]


def test_what_only_other_families_have_is_known_to_be_missing() -> None:
    assert facts(qkv.QkvEncoderConfig())["config.cross_attention"] == (MISSING,)
    assert facts(qkv.QkvDecoderConfig())["config.pooling"] == (MISSING,)


def test_patterns_of_all_layers_are_known() -> None:
    config = qkv.QkvDecoderConfig(num_hidden_layers=2, attention_patterns=["full", "sliding"], sliding_window=4)
    assert facts(config)["pattern"] == ("full", "sliding")
    assert {"block_sparse", "rope", "rms"} <= words_gone(config) and not {"full", "sliding"} & words_gone(config)


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
    assert freeze(source, llama) == expected
    mixed = qkv.QkvDecoderConfig(num_hidden_layers=2, attention_patterns=["full", "sliding"], sliding_window=4)
    narrowed = freeze("class A(B):\n    attention_patterns: list[PatternName] | None = None\n", mixed)
    assert narrowed == "class A(B):\n    attention_patterns: list[Literal['full', 'sliding']] | None = None\n"
    ast.parse(narrowed)
