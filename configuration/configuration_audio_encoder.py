"""Audio encoders: spectrograms read through convolutions, alone (CTC) or before a decoder (Whisper, Speech2Text)."""

from math import prod
from typing import ClassVar

from .axes import ConvolutionName, FrameLayoutName, FramePaddingName, FrontendName
from .configuration_attention import check_grid
from .configuration_base import auto_classes_of
from .configuration_stack import StackConfig
from .earlier_names import root_of_width
from .fields import Derived, at_least, bounded, positive, rate, size_of


def are_sizes(sizes: list[int] | tuple[int, ...]) -> bool:
    """Return whether these are one or more whole numbers, none below 1."""
    return len(sizes) >= 1 and all(type(size) is int and size >= 1 for size in sizes)


class QkvAudioEncoderConfig(StackConfig):
    """Configure an audio encoder: spectrogram -> convolutions over time -> bidirectional stack -> head.

    Args:
        num_mel_bins: Number of mel bins of a frame.
        frame_layout: Axes: `frames_first` (batch, frames, bins) or `bins_first` (batch, bins, frames) of Whisper.
        frame_padding: What becomes of padded frames: `zeroed` before every convolution and not attended to, so that a
            batch gives what its rows give; `masked`, not attended to (Speech2Text); `unmasked` (Whisper).
        convolution: What follows each convolution: `plain`, a GELU (Whisper); `gated`, a GLU (Speech2Text).
        conv_kernel_sizes: Width of each convolution in frames; odd.
        conv_strides: Stride of each convolution in frames; their product is the number of frames for one token.
        conv_channels: Number of channels between two convolutions. None is `hidden_size`.
        hop_length: Samples of sound between two frames, from which pipelines compute times.
        apply_spec_augment: Whether training masks time and frequency (SpecAugment).
        mask_time_prob: Share of frames that is masked, approximately.
        mask_time_length: Length of a masked span in frames.
        mask_time_min_masks: Smallest number of masked spans of a row.
        mask_feature_prob: Share of mel bins that is masked, approximately.
        mask_feature_length: Length of a masked span in mel bins.
        mask_feature_min_masks: Smallest number of masked spans of mel bins.
        embedding_multiplier: Factor on the output of the convolutions, such as sqrt(hidden_size) (Speech2Text).
        vocab_size: Number of tokens that the CTC head scores.
        lm_head_bias: Whether the CTC head has a bias.
        ctc_zero_infinity: Whether the loss of a row too short for its labels counts as 0 instead of being an error.
        pad_token_id: Blank of CTC.
    """

    model_type = "qkv_audio_encoder"
    frontend: ClassVar[FrontendName] = "spectrogram"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of("audio_encoder", "QkvAudioEncoder", "CTC")

    num_mel_bins: int = at_least(1, 80)
    frame_layout: FrameLayoutName = "frames_first"
    frame_padding: FramePaddingName = "zeroed"
    convolution: ConvolutionName = "gated"
    conv_kernel_sizes: list[int] | tuple[int, ...] = bounded((5, 5), are_sizes, "be a list of whole numbers above 0")
    conv_strides: list[int] | tuple[int, ...] = bounded((2, 2), are_sizes, "be a list of whole numbers above 0")
    conv_channels: Derived = size_of("hidden_size")
    hop_length: int = at_least(1, 160)
    apply_spec_augment: bool = False
    mask_time_prob: float | int = rate(0.05)
    mask_time_length: int = at_least(1, 10)
    mask_time_min_masks: int = at_least(0, 2)
    mask_feature_prob: float | int = rate()
    mask_feature_length: int = at_least(1, 10)
    mask_feature_min_masks: int = at_least(0, 0)
    embedding_multiplier: float | int = positive(1.0)
    vocab_size: int = at_least(1, 32)
    lm_head_bias: bool = True
    classifier_dropout: float | int = rate()
    ctc_zero_infinity: bool = False
    pad_token_id: int | None = 0

    scale_embedding = root_of_width("embedding_multiplier", 0.5)

    @property
    def inputs_to_logits_ratio(self) -> int:
        """Samples of sound for one token."""
        return self.hop_length * prod(self.conv_strides)

    def validate_convolutions(self) -> None:
        """Check that each convolution has an odd width and a stride, and that nothing wants rows and columns."""
        sizes, strides = self.conv_kernel_sizes, self.conv_strides
        if len(sizes) != len(strides):
            raise ValueError(f"conv_kernel_sizes={sizes} and conv_strides={strides} differ in length; give as many")
        if even := [size for size in sizes if size % 2 == 0]:
            raise ValueError(f"conv_kernel_sizes={sizes} contain {even[0]}; an odd size has its frame in the middle")
        check_grid(self, "frames of sound")
