"""Each object gets the query that the formula of the paper finds cheapest, and the loss is that of the pairs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

import reference
from comparison import EXACT, assert_same, exact
from qkv.modeling.heads.matching import generalized_iou, set_loss

LABELS = 3
WEIGHTS = {"class_cost": 1.0, "bbox_cost": 5.0, "giou_cost": 2.0}
LOSS = {"bbox_loss_coefficient": 5.0, "giou_loss_coefficient": 2.0, "eos_coefficient": 0.1}


def config(**fields: Any) -> Any:
    return SimpleNamespace(**{**WEIGHTS, **LOSS, "num_labels": LABELS, "auxiliary_loss": False, **fields})


def boxes(*shape: int) -> Tensor:
    return (torch.rand(*shape, 4, dtype=torch.float64) * 0.5 + 0.1).requires_grad_()


def answer(images: int, queries: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(images, queries, LABELS + 1, dtype=torch.float64, requires_grad=True), boxes(images, queries)


def objects(*counts: int) -> list[dict[str, Tensor]]:
    return [{"class_labels": torch.randint(LABELS, (count,)), "boxes": boxes(count).detach()} for count in counts]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0.4, 0.5, 0.4, 0.4), (0.6, 0.5, 0.4, 0.4), 1 / 3),  # moved by half a width
        ((0.2, 0.5, 0.2, 0.2), (0.6, 0.5, 0.2, 0.2), -1 / 3),  # a gap as wide as each
        ((0.3, 0.3, 0.2, 0.4), (0.3, 0.3, 0.2, 0.4), 1.0),
        ((0.5, 0.5, 0.4, 0.4), (0.5, 0.5, 0.2, 0.2), 1 / 4),  # inside the other
    ],
)
def test_the_overlap_of_boxes_by_hand(one: tuple, other: tuple, expected: float) -> None:
    pair = [torch.tensor(box, dtype=torch.float64) for box in (one, other)]
    assert generalized_iou(*pair).item() == pytest.approx(expected, abs=EXACT)
    assert reference.generalized_iou(*pair).item() == pytest.approx(expected, abs=EXACT)


def test_the_overlap_is_the_formula_with_gradients() -> None:
    one, other = boxes(7), boxes(7)
    expected = torch.stack([reference.generalized_iou(*pair) for pair in zip(one, other, strict=True)])
    assert_same(generalized_iou(one, other), expected, one, other)
    empty = torch.tensor([0.5, 0.5, 0.0, 0.0])
    for other in (empty, torch.tensor([0.2, 0.2, 0.1, 0.1])):
        assert generalized_iou(empty, other).abs() <= 1


@pytest.mark.parametrize("counts", [(2, 0, 3), (0, 0, 0), (6, 1, 0)], ids=str)
def test_the_loss_is_that_of_transformers_for_the_same_answers(counts: tuple[int, ...]) -> None:
    answers, found = [answer(3) for _ in range(3)], objects(*counts)
    loss, parts = set_loss(answers, found, config())
    stacked = [torch.stack(values) for values in zip(*answers, strict=True)]
    settings = config(auxiliary_loss=True, decoder_layers=3)
    last = answers[-1]
    with exact():  # it weighs classes in single precision
        expected, theirs, _ = ForObjectDetectionLoss(last[0], found, "cpu", last[1], settings, *stacked)
    assert_same(loss, expected, *(leaf for pair in answers for leaf in pair), tolerance=1e-10)
    assert parts.keys() == {name for name in theirs if "cardinality" not in name}
    for name, value in parts.items():
        assert abs(value - theirs[name]) <= 1e-10, name


def test_parts_of_a_step_add_up() -> None:
    (logits, places), found = answer(4), objects(3, 0, 1, 2)
    whole = set_loss([(logits, places)], found, config())[0]
    count = torch.tensor([6, 4])
    parts = [
        set_loss([(logits[rows], places[rows])], found[rows], config(), count)[0] for rows in (slice(0, 1), slice(1, 4))
    ]
    assert_same(sum(parts), whole, logits, places)
    alone = sum(set_loss([(logits[rows], places[rows])], found[rows], config())[0] for rows in (slice(1), slice(1, 4)))
    assert abs(alone / 2 - whole) > 1e-3


def test_half_precision_is_widened_and_a_model_that_has_diverged_shows_it() -> None:
    (logits, places), found = answer(1), objects(2)
    assert set_loss([(logits.bfloat16(), places.bfloat16())], found, config())[0].dtype == torch.float32
    with torch.no_grad():
        places[0, 1] = logits[0, 2] = float("nan")
    assert set_loss([(logits, places)], found, config())[0].isnan()
