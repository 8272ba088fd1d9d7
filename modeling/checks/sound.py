"""Checks of spectrograms and of the labels of speech.

Shapes: B batch, L frames, T tokens, V vocabulary.
"""

from torch import Tensor

from ...configuration.configuration_audio_encoder import QkvAudioEncoderConfig
from .inputs import can_read_values, check_range, check_shape


def check_features(features: Tensor, config: QkvAudioEncoderConfig) -> None:
    """Check that a spectrogram has the bins of the config, on the axis of the config, and numbers in them."""
    bins = -1 if config.frame_layout == "frames_first" else 1
    if features.ndim != 3 or features.shape[bins] != config.num_mel_bins or 0 in features.shape:
        wanted = f"num_mel_bins={config.num_mel_bins} and frame_layout={config.frame_layout!r}"
        raise ValueError(f"input_features of shape {tuple(features.shape)} are empty or do not fit {wanted}")
    if can_read_values(features) and not features.isfinite().all():
        mend = "leave silent sound out, or set do_ceptral_normalize=False in the feature extractor"
        raise ValueError(f"input_features contain NaN or infinity; {mend}")


def check_frame_mask(attention_mask: Tensor, frames: Tensor) -> None:
    """Check the marks of real frames (B, L), which stand in front of the padding, at least one in each row."""
    check_shape("attention_mask", attention_mask, (frames.shape[0], frames.shape[2]), "rows of frames")
    rises = attention_mask[:, 1:] > attention_mask[:, :-1]
    if can_read_values(attention_mask) and (not attention_mask[:, 0].all() or rises.any()):
        raise ValueError("attention_mask of frames has padding in front; pad at the end, with padding_side='right'")


def check_blank(config: QkvAudioEncoderConfig) -> None:
    """Check that CTC has a blank, the token that stands for none."""
    blank = config.pad_token_id
    if blank is None or not 0 <= blank < config.vocab_size:
        last = config.vocab_size - 1
        raise ValueError(f"pad_token_id={blank} is the blank of CTC and must be a token id from 0 to {last}")


def check_ctc_labels(labels: Tensor, lengths: Tensor, vocab_size: int, blank: int, ignored: int) -> None:
    """Check labels (B, words): tokens of the vocabulary, none of them the blank, one row for each of sound."""
    if labels.ndim != 2 or labels.is_floating_point() or len(labels) != len(lengths):
        got = f"labels of shape {tuple(labels.shape)} and type {labels.dtype}"
        raise ValueError(f"{got} are not whole numbers (batch={len(lengths)}, length), padded with {ignored}")
    due = labels != ignored
    check_range("labels", labels[due], vocab_size, "vocabulary", f"set vocab_size, or {ignored} where none is due")
    if can_read_values(labels) and (labels == blank).any():
        raise ValueError(f"labels contain pad_token_id={blank}, the blank of CTC; pad them with {ignored}")


def check_ctc_lengths(labels: Tensor, lengths: Tensor, ignored: int) -> None:
    """Check that each row has room for its labels, and for a blank between two that are alike."""
    rows = zip(labels, lengths.tolist(), strict=True) if can_read_values(labels) else ()
    for row, (padded, length) in enumerate(rows):
        words = padded[padded != ignored]
        needed = len(words) + int((words[1:] == words[:-1]).sum())
        if needed > length:
            due = f"row {row} has {len(words)} labels, which take {needed} tokens, and {length} tokens of sound"
            raise ValueError(f"{due}; leave it out, use smaller conv_strides, or set ctc_zero_infinity=True")
