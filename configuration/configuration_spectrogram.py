"""Everything a config says about sound: how frames of a spectrogram become tokens, what training hides of them."""

from math import prod
from typing import Any

from .axes import ConvolutionName, FrameLayoutName, FramePaddingName
from .configuration_base import Derived, at_least, bounded, checked, rate
from .configuration_stack import StackConfig


def are_sizes(sizes: list[int]) -> bool:
    """Whether these are one or more whole numbers, none below 1."""
    return len(sizes) >= 1 and all(type(size) is int and size >= 1 for size in sizes)


@checked
class SpectrogramConfig(StackConfig):
    """The convolutions of `frontend="spectrogram"`, SpecAugment, and the loss of CTC.

    A convolution over time for each entry of `conv_kernel_sizes` and `conv_strides`, `conv_channels` wide between two;
    `convolution` is what follows each: `plain` a GELU (Whisper), `gated` a GLU (Speech2Text). `frame_layout` is how a
    feature extractor lays its frames out: `frames_first` (B, frames, bins) or `bins_first` (B, bins, frames).
    `frame_padding` is what becomes of padded frames: `silenced` before every convolution and not attended to, so that
    a batch gives what its rows give; `masked` in attention alone (Speech2Text); `heard` as the silence they stand for
    (Whisper). `hop_length` is the samples between two frames, from which pipelines tell the time.
    SpecAugment acts in training, where `apply_spec_augment` says so: stretches of `mask_time_length` frames, about
    `mask_time_prob` of all and at least `mask_time_min_masks` stretches, are set to 0; `mask_feature_…` for bins.
    """

    num_mel_bins: int = at_least(1, 80)
    frame_layout: FrameLayoutName = "frames_first"
    frame_padding: FramePaddingName = "silenced"
    convolution: ConvolutionName = "gated"
    conv_kernel_sizes: list[int] | tuple[int, ...] = bounded((5, 5), are_sizes, "be a list of whole numbers above 0")
    conv_strides: list[int] | tuple[int, ...] = bounded((2, 2), are_sizes, "be a list of whole numbers above 0")
    conv_channels: Derived = at_least(1)
    hop_length: int = at_least(1, 160)
    apply_spec_augment: bool = False
    mask_time_prob: float | int = rate(0.05)
    mask_time_length: int = at_least(1, 10)
    mask_time_min_masks: int = at_least(0, 2)
    mask_feature_prob: float | int = rate()
    mask_feature_length: int = at_least(1, 10)
    mask_feature_min_masks: int = at_least(0, 0)
    ctc_zero_infinity: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        # JSON knows lists only, and a loaded config equals the saved one.
        self.conv_kernel_sizes, self.conv_strides = list(self.conv_kernel_sizes), list(self.conv_strides)
        if self.conv_channels is None:
            self.conv_channels = self.hidden_size
        super().__post_init__(**kwargs)

    @property
    def inputs_to_logits_ratio(self) -> int:
        """Samples of sound for each token."""
        return self.hop_length * prod(self.conv_strides)

    def validate_convolutions(self) -> None:
        """Each convolution has a size and a stride, and an odd size, so that it has a middle."""
        sizes, strides = self.conv_kernel_sizes, self.conv_strides
        if len(sizes) != len(strides):
            raise ValueError(
                f"conv_kernel_sizes={sizes} and conv_strides={strides} differ in length; give each one both"
            )
        if even := [size for size in sizes if size % 2 == 0]:
            raise ValueError(f"conv_kernel_sizes={sizes} contain {even[0]}; an odd size has its frame in the middle")
