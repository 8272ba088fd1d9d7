"""Audio that no model can read, and labels that it cannot learn: one sentence each."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from qkv.modeling import QkvAudioEncoderForCTC

MASK = "attention_mask of frames has padding in front; pad sound at its end, with padding_side='right'"


def ctc(**fields: Any) -> QkvAudioEncoderForCTC:
    return QkvAudioEncoderForCTC(tiny.audio_encoder(**fields)).eval()


def changed(**changes: Any) -> dict[str, Tensor]:
    return {**tiny.audio_with_labels(), **changes}


def labels(*rows: list[int]) -> dict[str, Tensor]:
    return changed(labels=torch.tensor(rows))


def broken(value: float) -> Tensor:
    features = tiny.audio(9)["input_features"]
    features[0, 0, 0] = value
    return features


SOUND = tiny.audio(9)
FITTING = "are not (batch, frames, 6) as num_mel_bins=6 and frame_layout='frames_first' say"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "bins first": (changed(input_features=SOUND["input_features"].transpose(1, 2)), FITTING),
    "one row": (changed(input_features=SOUND["input_features"][0]), FITTING),
    "no frames": (changed(input_features=torch.zeros(2, 0, 6)), "on sound that is not empty"),
    "nan": (
        changed(input_features=broken(float("nan"))),
        "input_features contain NaN or infinity; sound that is silent",
    ),
    "infinity": (changed(input_features=broken(float("-inf"))), "input_features contain NaN or infinity"),
    "mask of tokens": (
        changed(attention_mask=torch.ones(2, 8).long()),
        "of shape (2, 8) does not fit 2 rows of 33 frames",
    ),
    "padding in front": (changed(attention_mask=SOUND["attention_mask"].flip(1)), MASK),
    "a hole": (changed(attention_mask=(torch.arange(33) != 4).long().expand(2, -1)), MASK),
    "one number": (
        labels([3], [4]) | {"labels": torch.tensor([3, 4])},
        "are not whole numbers (batch, length) for 2 rows",
    ),
    "a strange word": (labels([61], [4]), "labels contain 61, outside the vocabulary of 61 (0 to 60)"),
    "the blank": (
        labels([5, 1], [4, 6]),
        "labels contain 1, which is pad_token_id and so the blank of CTC; pad labels",
    ),
    "too many words": (
        labels([5] * 5, [4, 4, 4, 5, 5]),
        "row 1 has 5 labels, which take 8 tokens, and 7 tokens of sound",
    ),
    "tokens": (
        {"input_ids": torch.tensor([[5]])},
        "input_ids given to QkvAudioEncoderModel, which reads input_features",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_impossible_audio_is_refused_in_a_sentence(name: str) -> None:
    inputs, sentence = CASES[name]
    with pytest.raises(ValueError) as error:
        ctc()(**inputs)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_blank_is_needed() -> None:
    with pytest.raises(ValueError, match="pad_token_id=None is the blank of CTC and must be a token id from 0 to 60"):
        ctc(pad_token_id=None)


def test_rows_that_are_too_short_may_be_left_to_teach_nothing() -> None:
    inputs = labels([5] * 5, [4, 4, 4, 5, 5])
    spared = ctc(ctc_zero_infinity=True)
    assert spared(**inputs).loss.isfinite()
