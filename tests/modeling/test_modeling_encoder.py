"""An encoder's heads learn what the config calls the problem."""

import pytest
import torch

import tiny
from qkv.modeling import QkvEncoderForSequenceClassification


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification", "regression"])
def test_the_problem_may_be_named(kind: str) -> None:
    # Whole numbers, of which only the config knows whether they are classes.
    model = tiny.precise(QkvEncoderForSequenceClassification, problem_type=kind)
    whole = torch.tensor([1, 0]) if kind.startswith("single") else torch.tensor([[1, 0, 1], [0, 0, 1]])
    output = model(**tiny.text(), labels=whole)
    expected = {
        "single_label_classification": lambda: torch.nn.CrossEntropyLoss()(output.logits, whole).item(),
        "multi_label_classification": lambda: torch.nn.BCEWithLogitsLoss()(output.logits, whole.double()).item(),
        "regression": lambda: torch.nn.MSELoss()(output.logits, whole.double()).item(),
    }[kind]()
    assert output.loss.item() == pytest.approx(expected)
