"""What a config says about sound is refused where it cannot be right, and saved as it was meant."""

from typing import Any

import pytest

import tiny
from errors import raises_sentence
from qkv.configuration import QkvAudioEncoderConfig

WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"conv_strides": [2]}, ("conv_kernel_sizes=[5, 5]", "conv_strides=[2]")),
    ({"conv_kernel_sizes": [4, 5]}, ("conv_kernel_sizes=[4, 5]", "odd")),
    ({"conv_strides": [0, 2]}, ("conv_strides=[0, 2]",)),
    ({"frame_padding": "silenced"}, ("frame_padding='silenced'", "zeroed, masked, unmasked")),
    ({"mask_time_prob": 1.0}, ("mask_time_prob=1.0",)),
    ({"image_size": 8}, ("'image_size'", "QkvAudioEncoderConfig", "QkvImageEncoderConfig")),
    ({"num_mel_bin": 8}, ("'num_mel_bin'", "'num_mel_bins'")),
    ({"position": "grid"}, ("'grid'", "rows")),
    ({"pattern": ["row", "full"]}, ("'row'", "rows")),
]


@pytest.mark.parametrize(("given", "mentions"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_values_are_refused(given: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with raises_sentence(*mentions):
        tiny.audio_encoder(**given)


def test_tuples_are_saved_as_lists_and_channels_follow_the_width() -> None:
    config = QkvAudioEncoderConfig(conv_kernel_sizes=(3,), conv_strides=(4,), hidden_size=36)
    assert (config.conv_kernel_sizes, config.conv_strides, config.conv_channels) == ([3], [4], 36)
    assert QkvAudioEncoderConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_samples_of_a_token_are_those_of_its_frames() -> None:
    assert tiny.audio_encoder().inputs_to_logits_ratio == 160 * 4
    assert tiny.audio_encoder("plain", hop_length=100).inputs_to_logits_ratio == 100 * 2
