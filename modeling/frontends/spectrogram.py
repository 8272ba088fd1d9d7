"""The frontend of speech: convolutions over the frames of a spectrogram, each of which may shorten it.

Shapes: B batch, L frames, M mel bins, T tokens, C channels, D hidden_size.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...configuration.configuration_audio_encoder import QkvAudioEncoderConfig
from ..checks.sound import check_features, check_frame_mask
from ..position.hooks import Embedded


class Convolution(nn.Conv1d):
    """Mix frames with their neighbours, then GELU; the middle of each filter steps over every `stride`-th frame.

    Source: Radford et al. 2023, Whisper, §2.2, https://arxiv.org/abs/2212.04356
    Shapes: (B, C, L) -> (B, C, (L - 1) // stride + 1)
    """

    activation: Callable[[Tensor], Tensor] = staticmethod(F.gelu)
    # Filters for each channel that comes out.
    filters = 1

    def __init__(self, config: QkvAudioEncoderConfig, index: int) -> None:
        sizes, last = config.conv_kernel_sizes, len(config.conv_kernel_sizes) - 1
        given = config.conv_channels if index else config.num_mel_bins
        wanted = config.hidden_size if index == last else config.conv_channels
        stride, padding = config.conv_strides[index], sizes[index] // 2
        super().__init__(given, self.filters * wanted, sizes[index], stride=stride, padding=padding)

    def forward(self, input: Tensor) -> Tensor:
        return self.activation(super().forward(input))


class GatedConvolution(Convolution):
    """Mix frames with their neighbours, half of the filters gating the other half.

    Source: Synnaeve et al. 2020, §3.1, https://arxiv.org/abs/1911.08460; gate: Dauphin et al. 2017, §2,
        https://arxiv.org/abs/1612.08083
    Shapes: (B, C, L) -> (B, C, (L - 1) // stride + 1)
    """

    activation = staticmethod(lambda hidden: F.glu(hidden, dim=1))
    filters = 2


CONVOLUTIONS: dict[str, type[Convolution]] = {"plain": Convolution, "gated": GatedConvolution}


# Axes that are batch, bins and frames: `frames_first` is Kaldi's layout, `bins_first` is Whisper's.
FRAME_LAYOUTS = {"frames_first": (0, 2, 1), "bins_first": (0, 1, 2)}


def zero_padding(features: Tensor, lengths: Tensor | None) -> Tensor:
    """Read padding as zero, as beyond the end of a row: it has the same outputs in every batch.

    Source: Gulati et al. 2020, Conformer, as NVIDIA NeMo masks its convolutions, https://arxiv.org/abs/2005.08100
    Shapes: (B, C, L), lengths (B,) or None -> (B, C, L)
    """
    return features if lengths is None else features * length_mask(lengths, features.shape[-1])[:, None]


def leave_padding(features: Tensor, lengths: Tensor | None) -> Tensor:
    """Let convolutions read padding, which tokens then attend to as silence (Whisper), or not (Speech2Text).

    Source: Radford et al. 2023, Whisper, §2.2, https://arxiv.org/abs/2212.04356; Wang et al. 2020, fairseq S2T, §2,
        https://arxiv.org/abs/2010.05171
    Shapes: (B, C, L), lengths (B,) or None -> (B, C, L)
    """
    return features


# Treatment of padded frames before every convolution.
FRAME_PADDINGS = {"zeroed": zero_padding, "masked": leave_padding, "unmasked": leave_padding}


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Mark the places up to each row's length: (B, size)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


class SpectrogramFrontend(nn.Module):
    """Read a spectrogram through convolutions over time, times sqrt(D) where the config scales embeddings.

    Training may hide stretches of time and of pitch (SpecAugment).

    Source: Dong et al. 2018, Speech-Transformer, §3.1; SpecAugment: Park et al. 2019, §2, https://arxiv.org/abs/1904.08779
    Shapes: input_features (B, L, M) or (B, M, L), mask (B, L) or None -> (B, T, D)
    """

    def __init__(self, config: QkvAudioEncoderConfig) -> None:
        super().__init__()
        self.config = config
        convolution = CONVOLUTIONS[config.convolution]
        self.convolutions = nn.ModuleList(convolution(config, index) for index in range(len(config.conv_strides)))
        self.embed_scale = config.embedding_multiplier

    def forward(self, input_features: Tensor, attention_mask: Tensor | None = None) -> Embedded:
        check_features(input_features, self.config)
        hidden = input_features.to(next(self.parameters()).dtype).permute(FRAME_LAYOUTS[self.config.frame_layout])
        lengths = self.lengths(attention_mask, hidden)
        if self.config.apply_spec_augment and self.training:
            hidden = augment(hidden, lengths, self.config)
        for convolution, stride in zip(self.convolutions, self.config.conv_strides, strict=True):
            hidden = convolution(FRAME_PADDINGS[self.config.frame_padding](hidden, lengths))
            lengths = shortened(lengths, stride)
        hidden = hidden.transpose(1, 2) * self.embed_scale
        return Embedded(hidden, self.padding_mask(attention_mask, hidden.shape[1]))

    def padding_mask(self, attention_mask: Tensor | None, length: int) -> Tensor | None:
        """Return which tokens are real, from the mask of frames: (B, L) -> (B, T); a mask of tokens passes."""
        if attention_mask is not None and attention_mask.shape[1] == length:
            return attention_mask if self.config.frame_padding != "unmasked" else None
        lengths = None if attention_mask is None else self.lengths(attention_mask, attention_mask[:, None])
        for stride in self.config.conv_strides:
            lengths = shortened(lengths, stride)
        return None if lengths is None else length_mask(lengths, length).long()

    def lengths(self, attention_mask: Tensor | None, features: Tensor) -> Tensor | None:
        """Return how many frames of each row are real (B,), or None where padding does not count."""
        if attention_mask is None or self.config.frame_padding == "unmasked":
            return None
        check_frame_mask(attention_mask, features)
        return attention_mask.long().sum(-1)


def shortened(lengths: Tensor | None, stride: int) -> Tensor | None:
    """Return the lengths after a convolution, or None where padding does not count: (B,) -> (B,)."""
    return None if lengths is None else (lengths - 1) // stride + 1


def augment(features: Tensor, lengths: Tensor | None, config: QkvAudioEncoderConfig) -> Tensor:
    """Set stretches of time and of mel bins to 0: (B, M, L) -> same."""
    batch, bins, frames = features.shape
    real = features.new_full((batch,), frames, dtype=torch.long) if lengths is None else lengths
    time = (config.mask_time_prob, config.mask_time_length, config.mask_time_min_masks)
    pitch = (config.mask_feature_prob, config.mask_feature_length, config.mask_feature_min_masks)
    hidden_frames = stretches(real, frames, *time)[:, None, :]
    hidden_bins = stretches(torch.full_like(real, bins), bins, *pitch)[:, :, None]
    return features.masked_fill(hidden_frames | hidden_bins, 0.0)


def stretches(lengths: Tensor, size: int, share: float, width: int, least: int) -> Tensor:
    """Mark random stretches of `width`, which may overlap, about `share` of each row in all: (B, size)."""
    if share == 0:
        return torch.zeros(len(lengths), size, dtype=torch.bool, device=lengths.device)
    # A stretch begins where it still fits.
    starts = (lengths - width + 1).clamp(min=0)
    count = (share * lengths / width + torch.rand(lengths.shape, device=lengths.device)).long().clamp(min=least)
    drawn = torch.rand(len(lengths), size, device=lengths.device).masked_fill(~length_mask(starts, size), 2.0)
    begun = (drawn.argsort(-1).argsort(-1) < count.minimum(starts)[:, None]).long().cumsum(-1)
    return begun - F.pad(begun, (width, 0))[:, :size] > 0
