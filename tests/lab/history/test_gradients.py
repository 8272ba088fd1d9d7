"""Gradients by distance: the derivative of one output's loss by the letter opposite, and the steps between them."""

import itertools

import pytest
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from qkv.scripts.lab.history.gradients import TEXTS, gradients_by_distance, positions
from qkv.scripts.lab.history.models import COMPARED, FIRST, VOCABULARY, reversals

LENGTH = 2


def loss(model: PreTrainedModel, place: int, change: torch.Tensor) -> float:
    """The loss at a place of the texts that `curve` draws, their embeddings changed."""
    random = torch.Generator().manual_seed(LENGTH)
    batch = reversals(TEXTS, LENGTH, random)
    wanted = torch.randint(FIRST, VOCABULARY, (TEXTS, LENGTH), generator=random)
    embedded = model.get_input_embeddings()(batch["input_ids"]) + change
    logits = model(inputs_embeds=embedded, labels=batch["labels"], use_cache=False).logits
    return F.cross_entropy(logits[:, place], wanted[:, place], reduction="sum").item()


@pytest.mark.parametrize("name", COMPARED)
def test_the_norm_is_that_of_finite_differences(name: str) -> None:
    model, step = COMPARED[name](4).train(), 1e-5
    found = gradients_by_distance({name: model}, LENGTH)[name]
    assert model.training and model.dtype == torch.float32
    model.double().eval()
    assert [distance for distance, _ in found] == [1, 3]
    slopes = torch.zeros(TEXTS, 4, dtype=torch.float64)
    for text, component in itertools.product(range(TEXTS), range(4)):
        change = torch.zeros(TEXTS, LENGTH + 1, 4, dtype=torch.float64)
        change[text, 0, component] = step
        with torch.no_grad():
            slopes[text, component] = (loss(model, 1, change) - loss(model, 1, -change)) / (2 * step)
    assert found[1][1] == pytest.approx(float(slopes.norm(dim=-1).mean()), rel=1e-5)


@pytest.mark.parametrize(("length", "expected"), [(1, [0]), (2, [0, 1]), (5, [0, 1, 2, 4]), (9, [0, 1, 2, 4, 8])])
def test_places_are_dense_at_first_and_end_with_the_last(length: int, expected: list[int]) -> None:
    assert positions(length) == expected
