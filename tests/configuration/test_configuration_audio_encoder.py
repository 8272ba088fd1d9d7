"""An audio encoder's own fields: convolutions, and the samples of a token."""

import tiny
from qkv.configuration import QkvAudioEncoderConfig


def test_tuples_are_saved_as_lists_and_channels_follow_the_width() -> None:
    config = QkvAudioEncoderConfig(conv_kernel_sizes=(3,), conv_strides=(4,), hidden_size=36)
    assert (config.conv_kernel_sizes, config.conv_strides, config.conv_channels) == ([3], [4], 36)
    assert QkvAudioEncoderConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_samples_of_a_token_are_those_of_its_frames() -> None:
    assert tiny.audio_encoder().inputs_to_logits_ratio == 160 * 4
    assert tiny.audio_encoder("plain", hop_length=100).inputs_to_logits_ratio == 100 * 2
