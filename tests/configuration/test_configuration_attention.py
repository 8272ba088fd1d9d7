"""Heads, positions and patterns: what is filled in, and what follows from it."""

from typing import Any

import pytest
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from errors import raises_sentence
from qkv import QkvAudioEncoderConfig, QkvDecoderConfig, QkvDetectionConfig, QkvEncoderConfig, QkvEncoderDecoderConfig
from qkv.configuration.axes import GRID_PATTERNS
from qkv.configuration.configuration_attention import ROPE_TYPES


@pytest.mark.parametrize(
    ("given", "head_dim", "groups"),
    [
        ({}, 64, 12),
        ({"hidden_size": 32, "num_attention_heads": 4}, 8, 4),
        ({"num_attention_heads": 4, "num_key_value_heads": 1}, 192, 1),
        # Heads may be wider or narrower than their share.
        ({"hidden_size": 10, "num_attention_heads": 3, "head_dim": 4}, 4, 3),
    ],
)
def test_heads_share_the_width(given: dict[str, int], head_dim: int, groups: int) -> None:
    config = QkvEncoderConfig(**given)
    assert (config.head_dim, config.num_key_value_heads) == (head_dim, groups)


def test_patterns_of_layers_in_our_words_and_in_those_of_the_caches() -> None:
    config = QkvDecoderConfig(num_hidden_layers=2, pattern="sliding", sliding_window=3)
    assert config.layer_patterns == ["sliding", "sliding"]
    assert config.layer_types == ["sliding_attention", "sliding_attention"]
    mixed = ["full", "sliding", "block_sparse"]
    config = QkvDecoderConfig(num_hidden_layers=3, pattern=mixed, sliding_window=3)
    assert config.layer_patterns == mixed
    assert config.layer_types == ["full_attention", "sliding_attention", "full_attention"]
    with raises_sentence("pattern", "3", "num_hidden_layers=2"):
        QkvDecoderConfig(num_hidden_layers=2, pattern=mixed, sliding_window=3)
    assert "layer_types" not in config.to_dict()


def test_rope_is_filled_in_and_nothing_else_has_it() -> None:
    assert QkvEncoderConfig(position="rope").rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    assert QkvEncoderConfig(position="rope", rope_theta=5e5).rope_parameters["rope_theta"] == 5e5
    assert QkvEncoderConfig(position="alibi").rope_parameters is None
    assert QkvEncoderConfig(rope_parameters={}).rope_parameters is None


def test_rope_may_differ_by_pattern() -> None:
    fields = {
        "position": "rope",
        "pattern": ["full", "sliding"],
        "num_hidden_layers": 2,
        "sliding_window": 3,
    }
    near, far = {"rope_theta": 10.0}, {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}
    config = QkvDecoderConfig(**fields, rope_parameters={"sliding": near, "full": far})
    assert config.rope_of("sliding") == {"rope_type": "default", "rope_theta": 10.0} and config.rope_of("full") == far
    assert near == {"rope_theta": 10.0}  # what was given stays as it was
    again = QkvDecoderConfig.from_dict(config.to_dict())
    assert again.rope_parameters == config.rope_parameters
    one = QkvDecoderConfig(**fields, rope_theta=7.0)
    assert one.rope_of("sliding") == one.rope_of("full") == {"rope_type": "default", "rope_theta": 7.0}
    for wrong, mentions in (
        ({"full": far}, ("rope_parameters", "pattern='sliding'")),
        ({"full": far, "sliding": near, "slidin": near}, ("rope_parameters='slidin'", "sliding")),
        ({"full": far, "sliding": {"rope_type": "linear"}}, ("rope_type='linear'", "factor")),
        ({"full": far, "sliding": {"rope_thetta": 3.0}}, ("rope_parameters", "'rope_thetta'", "'rope_theta'")),
    ):
        with raises_sentence(*mentions):
            QkvDecoderConfig(**fields, rope_parameters=wrong)


@pytest.mark.parametrize(
    ("given", "kept", "projections"),
    [
        (True, True, ("q_proj", "k_proj", "v_proj", "o_proj")),
        (False, False, ()),
        ([], False, ()),
        (["o_proj", "q_proj"], ["q_proj", "o_proj"], ("q_proj", "o_proj")),
        (["v_proj", "o_proj", "k_proj", "q_proj"], True, ("q_proj", "k_proj", "v_proj", "o_proj")),
    ],
)
def test_a_bias_is_that_of_all_projections_or_of_those_listed(given: Any, kept: Any, projections: Any) -> None:
    config = QkvEncoderConfig(attention_bias=given)
    assert (config.attention_bias, config.biased_projections) == (kept, projections)


def test_rope_scaling_in_the_words_of_older_configs() -> None:
    config = QkvDecoderConfig(position="rope", rope_theta=1e6, rope_scaling={"type": "linear", "factor": 4.0})
    assert config.rope_parameters == {"type": "linear", "rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}


def test_rope_types_are_known_to_transformers() -> None:
    assert set(ROPE_TYPES) - {"default"} <= set(ROPE_INIT_FUNCTIONS)


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "linear", "factor": 2},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 32, "mscale": 0.7},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "attention_factor": None},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
    ],
    ids=lambda parameters: parameters["rope_type"],
)
def test_given_rope_parameters_are_kept_and_not_touched(parameters: dict[str, Any]) -> None:
    before = dict(parameters)
    config = QkvDecoderConfig(position="rope", rope_parameters=parameters)
    assert parameters == before
    assert parameters.items() <= config.rope_parameters.items()


def test_nothing_is_shared_between_configs() -> None:
    given = {"rope_type": "linear", "factor": 2.0}
    patterns = ["full"] * 12
    config = QkvEncoderDecoderConfig(position="rope", rope_parameters=given, pattern=patterns)
    config.encoder.rope_parameters["factor"] = 8.0
    config.encoder.pattern[0] = "block_sparse"
    assert (config.decoder.rope_parameters["factor"], given["factor"]) == (2.0, 2.0)
    assert config.decoder.pattern[0] == patterns[0] == "full"


def test_causality_is_the_family_s() -> None:
    assert not QkvEncoderConfig.causal
    assert QkvDecoderConfig.causal
    assert "causal" not in QkvDecoderConfig().to_dict()


@pytest.mark.parametrize("pattern", GRID_PATTERNS)
def test_rows_and_columns_need_a_grid_of_one_width(pattern: str) -> None:
    with raises_sentence("position='grid'", "frames of sound"):
        QkvAudioEncoderConfig(position="grid", pattern=pattern)
    for fields, mention in (
        ({"pattern": ["full", pattern], "num_hidden_layers": 2}, "images of any size"),
        ({"decoder": {"pattern": pattern}}, "object queries"),
    ):
        with raises_sentence(f"pattern={pattern!r}", mention):
            QkvDetectionConfig(**fields)


def test_layer_types_may_be_said_again() -> None:
    """As tools do that shorten a model; what does not follow from the fields is refused."""
    config = QkvDecoderConfig(num_hidden_layers=3, pattern="full")
    config.num_hidden_layers = 1
    config.layer_types = ["full_attention"]
    assert config.layer_types == ["full_attention"]
    with pytest.raises(ValueError, match="layer_types=.*cannot be set"):
        config.layer_types = ["sliding_attention"]
