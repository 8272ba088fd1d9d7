"""Loss and gradients of a batch do not depend on the side of its padding, on given positions, or on the order of rows."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny

pytestmark = pytest.mark.upstream

Batch = dict[str, Any]
# Every head that reads a padded text; sound and pictures are padded at their ends, and refuse anything else.
HEADS = [case for case in tiny.LOSSES if "input_ids" in case.inputs() and "attention_mask" in case.inputs()]
RESIDUES = "EncoderForContactPrediction-pairs"  # whose labels are of the tokens inside a row, wherever it begins


def roll(value: Tensor, mask: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Move each row's padding, which stands behind, to the front."""
    rows = zip(value, (mask == 0).sum(-1), strict=True)
    return torch.stack([row.roll((int(count),) * len(dims), dims) for row, count in rows])


def left(batch: Batch, name: str) -> Batch:
    """The same batch with its padding in front."""
    if batch["input_ids"].ndim == 3:  # choices
        flat = {key: value.flatten(0, 1) for key, value in batch.items() if value.ndim == 3}
        return batch | {key: roll(value, flat["attention_mask"], (0,)).view(2, 3, -1) for key, value in flat.items()}
    mask, shape, moved = batch["attention_mask"], batch["input_ids"].shape, {}
    for key, value in batch.items():
        if isinstance(value, Tensor) and (value.shape == shape or (key == "labels" and value.ndim == 4)):
            moved[key] = roll(value, mask, (0,))
        elif key in ("msa_ids", "distance_bins") or (
            key == "labels" and value.ndim == 3 and not name.endswith(RESIDUES)
        ):
            square = value.shape[1] == shape[1] and key != "msa_ids"
            moved[key] = roll(value, mask, (0, 1) if square else (1,))
        elif key == "labels" and value.ndim == 2:  # of a target
            moved[key] = roll(value, value != -100, (0,))
        elif key.endswith("_positions"):
            moved[key] = value + (mask == 0).sum(-1)
    return batch | moved


def numbered(batch: Batch, name: str) -> Batch:
    return batch | {"position_ids": (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)}


def reordered(batch: Batch, name: str) -> Batch:
    return {key: value.flip(0) if isinstance(value, Tensor) and value.ndim else value for key, value in batch.items()}


def labelled(batch: Batch, name: str) -> Batch:
    """Padding with labels of its own, which teach nothing."""
    padding = batch["attention_mask"] == 0
    return batch | {"labels": batch["labels"].masked_fill(padding & (batch["labels"] == -100), 1)}


def step(case: tiny.Case, batch: Batch) -> list[Tensor]:
    """The loss and all gradients."""
    model = case.build().double()
    loss = model(**batch).loss
    loss.backward()
    return [loss.detach(), *(value.grad for value in model.parameters() if value.grad is not None)]


def check(case: tiny.Case, change: Callable[[Batch, str], Batch]) -> None:
    batch = case.inputs()
    if "decoder_attention_mask" not in batch:
        batch.pop("decoder_input_ids", None)  # made of the text, which has a mask
    expected = step(case, batch)
    for one, other in zip(expected, step(case, change(batch, case.name)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


EACH = pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)


@EACH
@pytest.mark.costly(24)
def test_padding_in_front(case: tiny.Case) -> None:
    check(case, left)


SKIPPING = [case for case in HEADS if "skip_logits" in signature(case.model_class.forward).parameters]


@pytest.mark.costly(6)
@pytest.mark.parametrize("case", SKIPPING, ids=lambda case: case.name)
def test_padding_in_front_without_logits(case: tiny.Case) -> None:
    check(case, lambda batch, name: left(batch, name) | {"skip_logits": True})


@EACH
@pytest.mark.costly(6)
def test_rows_in_another_order(case: tiny.Case) -> None:
    check(case, reordered)


POSITIONS = [case for case in HEADS if case.model_class.__name__.startswith(("QkvEncoderFor", "QkvDecoder"))]


@pytest.mark.costly(8)
@pytest.mark.parametrize("case", [case for case in POSITIONS if "Choice" not in case.name], ids=lambda case: case.name)
@pytest.mark.parametrize("side", [left, lambda batch, name: batch])
def test_positions_given(case: tiny.Case, side: Callable[[Batch, str], Batch]) -> None:
    check(case, lambda batch, name: numbered(side(batch, name), name))


PER_TOKEN = [
    case for case in HEADS if "labels" in (batch := case.inputs()) and batch["labels"].shape == batch["input_ids"].shape
]


@pytest.mark.costly(12)
@pytest.mark.parametrize("case", PER_TOKEN, ids=lambda case: case.name)
def test_labels_of_padding(case: tiny.Case) -> None:
    check(case, labelled)
    check(case, lambda batch, name: left(labelled(batch, name), name))
