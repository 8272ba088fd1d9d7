"""What a config says about sound is told in one sentence where it cannot be right, and saved as it was meant."""

from dataclasses import fields
from typing import Any

import pytest

import tiny
from qkv.configuration import QkvEncoderConfig, QkvEncoderDecoderConfig
from qkv.configuration.configuration_spectrogram import SpectrogramConfig
from qkv.configuration.configuration_stack import StackConfig

DEFAULTS = {
    **{"num_mel_bins": 80, "frame_layout": "frames_first", "frame_padding": "silenced", "convolution": "gated"},
    **{"conv_kernel_sizes": (5, 5), "conv_strides": (2, 2), "conv_channels": None, "hop_length": 160},
    **{"apply_spec_augment": False, "mask_time_prob": 0.05, "mask_time_length": 10, "mask_time_min_masks": 2},
    **{"mask_feature_prob": 0.0, "mask_feature_length": 10, "mask_feature_min_masks": 0, "ctc_zero_infinity": False},
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"conv_strides": [2]}, "conv_kernel_sizes=[5, 5] and conv_strides=[2] differ in length; give each one both"),
    ({"conv_kernel_sizes": [4, 5]}, "conv_kernel_sizes=[4, 5] contain 4; an odd size has its frame in the middle"),
    ({"conv_strides": [0, 2]}, "conv_strides=[0, 2] must be a list of whole numbers above 0"),
    (
        {"frame_padding": "silent"},
        "frame_padding='silent' is not one of silenced, masked, heard; did you mean 'silenced'?",
    ),
    ({"mask_time_prob": 1.0}, "mask_time_prob=1.0 must lie in [0, 1), for example 0.1"),
    ({"embedding_size": 8}, "embedding_size=8 is for frontend='tokens'; leave it out for spectrogram"),
    ({"num_mel_bin": 8}, "QkvEncoderConfig has no field 'num_mel_bin'; did you mean 'num_mel_bins'?"),
]


def test_defaults() -> None:
    inherited = {field.name for field in fields(StackConfig)}
    own = {field.name: field.default for field in fields(SpectrogramConfig) if field.name not in inherited}
    assert own == DEFAULTS


@pytest.mark.parametrize(("given", "sentence"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_values_are_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        tiny.hearer(**given)
    assert str(error.value).removesuffix(".") == sentence


def test_tuples_are_saved_as_lists_and_channels_follow_the_width() -> None:
    config = QkvEncoderConfig(frontend="spectrogram", conv_kernel_sizes=(3,), conv_strides=(4,), hidden_size=36)
    assert (config.conv_kernel_sizes, config.conv_strides, config.conv_channels) == ([3], [4], 36)
    assert QkvEncoderConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_samples_of_a_token_are_those_of_its_frames() -> None:
    assert tiny.hearer().inputs_to_logits_ratio == 160 * 4
    assert tiny.hearer("plain", hop_length=100).inputs_to_logits_ratio == 100 * 2


def test_sound_and_words_share_no_table() -> None:
    with pytest.raises(ValueError, match="share_embeddings=True needs one vocabulary, got spectrogram of"):
        QkvEncoderDecoderConfig(encoder={"frontend": "spectrogram"})


def test_the_whole_says_what_its_encoder_reads() -> None:
    assert (tiny.recogniser().frontend, tiny.translator().frontend) == ("spectrogram", "tokens")
    with pytest.raises(ValueError, match="max_source_positions=5 cannot be set"):
        tiny.recogniser(max_source_positions=5)
