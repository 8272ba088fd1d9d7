"""Frames become the vectors of the papers, whatever they are padded with, and SpecAugment masks as much as asked."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import reference
from comparison import TEXT, assert_same, draw, jittered
from qkv.configuration import QkvAudioEncoderConfig
from qkv.configuration.axes import ConvolutionName
from qkv.modeling.frontends.spectrogram import SpectrogramFrontend, augment, stretches

BINS, FRAMES = 3, 11
ACTIVATIONS = {"plain": reference.gelu, "gated": reference.gated}


def config(**fields: Any) -> QkvAudioEncoderConfig:
    sound = {"num_mel_bins": BINS, "conv_channels": 5, "position": "none"}
    return QkvAudioEncoderConfig(**{**TEXT, **sound, **fields})


def frontend(**fields: Any) -> SpectrogramFrontend:
    return jittered(SpectrogramFrontend(config(**fields)))


def by_hand(front: SpectrogramFrontend, frames: Tensor) -> Tensor:
    """One row, unpadded: (L, M) -> (T, D)."""
    hidden = frames.T
    for convolution in front.convolutions:
        hidden = reference.frame_convolution(hidden, convolution.weight, convolution.bias, convolution.stride[0])
        hidden = ACTIVATIONS[front.config.convolution](hidden)
    return hidden.T * front.embed_scale


def padded(*lengths: int) -> Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.parametrize("strides", [(2, 2), (1, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("kind", get_args(ConvolutionName))
def test_frames_are_convolved_as_by_hand(kind: str, strides: tuple[int, int]) -> None:
    front = frontend(convolution=kind, conv_strides=strides, conv_kernel_sizes=(5, 3), scale_embedding=True)
    sound = draw(2, FRAMES, BINS)
    expected = torch.stack([by_hand(front, row) for row in sound])
    assert_same(front(sound).hidden, expected, sound, *front.parameters())


def test_bins_may_come_first() -> None:
    front, sound = frontend(), draw(2, FRAMES, BINS)
    other = SpectrogramFrontend(config(frame_layout="bins_first")).double()
    other.load_state_dict(front.state_dict())
    assert torch.equal(other(sound.transpose(1, 2)).hidden, front(sound).hidden)


@pytest.mark.parametrize("kind", get_args(ConvolutionName))
def test_zeroed_padding_gives_each_row_what_it_has_alone(kind: str) -> None:
    front, lengths = frontend(convolution=kind, conv_kernel_sizes=(5, 7)), (11, 10, 9, 8, 7, 2, 1)
    sound = torch.randn(len(lengths), FRAMES, BINS).double()  # noise where padding is
    found, keep, _ = front(sound, padded(*lengths))
    for row, length in enumerate(lengths):
        alone = by_hand(front, sound[row, :length])
        assert keep[row].tolist() == [1] * len(alone) + [0] * (3 - len(alone))
        assert (found[row, : len(alone)] - alone).abs().max() < 1e-12


def test_masked_padding_is_seen_by_the_last_tokens_alone() -> None:
    front = frontend(frame_padding="masked", conv_kernel_sizes=(3, 3))
    sound, mask = torch.randn(1, FRAMES, BINS).double(), padded(11, 6)[1:]
    other = sound + (1 - mask[..., None])
    assert front(sound, mask).padding_mask.tolist() == [[1, 1, 0]]
    difference = (front(sound, mask).hidden - front(other, mask).hidden).abs().amax(-1)[0]
    assert difference[0] == 0 and difference[1] > 0


def test_unmasked_padding_is_sound_like_any_other() -> None:
    front, sound, mask = frontend(frame_padding="unmasked"), draw(2, FRAMES, BINS), padded(11, 6)
    assert torch.equal(front(sound, mask).hidden, front(sound).hidden) and front(sound, mask).padding_mask is None


def test_what_marks_tokens_passes_and_nothing_stays_nothing() -> None:
    front = frontend()
    assert torch.equal(front.padding_mask(padded(3, 2), 3), padded(3, 2)) and front.padding_mask(None, 3) is None


def runs(row: Tensor) -> list[int]:
    """Lengths of the stretches of True."""
    edges = torch.diff(row.int(), prepend=torch.zeros(1, dtype=torch.int), append=torch.zeros(1, dtype=torch.int))
    return ((edges == -1).nonzero() - (edges == 1).nonzero()).flatten().tolist()


@pytest.mark.parametrize(("share", "width", "least"), [(0.3, 4, 0), (0.1, 1, 2), (2.0, 7, 0), (1e-9, 3, 5)])
def test_stretches_are_those_of_the_slow_loop(share: float, width: int, least: int) -> None:
    lengths, size = torch.tensor([40, 23, 7, 3]), 40
    for seed in range(10):
        torch.manual_seed(seed)
        found = stretches(lengths, size, share, width, least)
        torch.manual_seed(seed)
        chances, draws = torch.rand(4), torch.rand(4, size)
        rows = zip(lengths.tolist(), chances.tolist(), draws.tolist(), strict=True)
        expected = [reference.hidden_frames(length, size, share, width, least, *drawn) for length, *drawn in rows]
        assert torch.equal(found, torch.stack(expected)) and found[0].any()


def test_what_is_hidden_is_what_the_slow_loop_hides() -> None:
    fields = {"mask_time_prob": 0.3, "mask_time_length": 3, "mask_feature_prob": 0.4, "mask_feature_length": 2}
    sound, lengths = torch.randn(3, 7, 30), torch.tensor([30, 19, 5])
    torch.manual_seed(1)
    found = augment(sound, lengths, config(mask_time_min_masks=1, mask_feature_min_masks=1, **fields))
    torch.manual_seed(1)
    drawn = [torch.rand(3), torch.rand(3, 30), torch.rand(3), torch.rand(3, 7)]
    for row, (time, times, pitch, pitches) in enumerate(zip(*(each.tolist() for each in drawn), strict=True)):
        frames = reference.hidden_frames(int(lengths[row]), 30, 0.3, 3, 1, time, times)
        bins = reference.hidden_frames(7, 7, 0.4, 2, 1, pitch, pitches)
        kept = [[0.0 if frames[f] or bins[b] else float(sound[row, b, f]) for f in range(30)] for b in range(7)]
        assert torch.equal(found[row], torch.tensor(kept))


def test_stretches_have_their_width_and_their_share_and_stay_in_the_sound() -> None:
    lengths = torch.tensor([400, 200, 40, 3])
    shares = []
    for _ in range(50):
        found = stretches(lengths, 400, 0.2, 5, 0)
        for row, length in zip(found, lengths.tolist(), strict=True):
            assert not row[length:].any() and all(run >= 5 for run in runs(row))
        shares.append(found.sum(-1) / lengths)
    mean = torch.stack(shares).mean(0)
    # Some overlap: of a share s that is asked for, 1 - exp(-s) is hidden.
    assert (mean[:3] - (1 - torch.exp(torch.tensor(-0.2)))).abs().max() < 0.02 and mean[3] == 0


def test_the_least_number_is_kept_and_a_probability_of_zero_hides_nothing() -> None:
    assert all(len(runs(row)) >= 1 for row in stretches(torch.tensor([30, 30]), 30, 1e-9, 4, 2))
    assert stretches(torch.tensor([30]), 30, 1e-9, 1, 2).sum() == 2
    assert not stretches(torch.tensor([30]), 30, 0.0, 4, 2).any()


def test_spec_augment_acts_in_training_alone_and_a_seed_repeats_it() -> None:
    fields = {"mask_time_prob": 0.3, "mask_time_length": 2, "mask_feature_prob": 0.3, "mask_feature_length": 1}
    front, sound = frontend(apply_spec_augment=True, mask_feature_min_masks=1, **fields), draw(2, FRAMES, BINS)
    plain = front.eval()(sound).hidden
    assert torch.equal(plain, front(sound).hidden)
    front.train()
    torch.manual_seed(3)
    first, second = front(sound).hidden, front(sound).hidden
    torch.manual_seed(3)
    assert torch.equal(front(sound).hidden, first) and not torch.equal(first, second) and not torch.equal(first, plain)
    off = SpectrogramFrontend(config(**fields)).double().train()
    off.load_state_dict(front.state_dict())
    assert torch.equal(off(sound).hidden, plain)
