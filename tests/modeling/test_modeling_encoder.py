"""Encoders by the numbers of their papers, and each head's loss by hand."""

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedModel

import tiny
from comparison import mean, mean_surprise, surprise
from qkv.configuration import presets
from qkv.modeling import (
    QkvEncoderForMaskedLM,
    QkvEncoderForMultipleChoice,
    QkvEncoderForPreTraining,
    QkvEncoderForQuestionAnswering,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
    QkvEncoderModel,
)

# sources.md, section 5.
PARAMETERS = [
    (QkvEncoderModel, "bert_base", 109_482_240),
    (QkvEncoderForMaskedLM, "bert_base", 109_514_298),
    (QkvEncoderForPreTraining, "bert_base", 110_106_428),
    (QkvEncoderModel, "bert_large", 335_141_888),
    (QkvEncoderForMaskedLM, "roberta_base", 124_697_433),
]


@pytest.mark.parametrize(("model_class", "preset", "count"), PARAMETERS)
def test_the_number_of_parameters_is_the_papers(model_class: Any, preset: str, count: int) -> None:
    with torch.device("meta"):
        model = model_class(getattr(presets, preset)())
    assert model.num_parameters() == count


def exact(model_class: Any, kind: str = "bert", **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.encoder(kind, **fields))).double().eval()


def test_segments_count_as_the_first_unless_given() -> None:
    model, inputs = exact(QkvEncoderModel), tiny.text()
    plain = model(**inputs).last_hidden_state
    first = model(**inputs, token_type_ids=torch.zeros_like(inputs["input_ids"])).last_hidden_state
    second = model(**inputs, token_type_ids=torch.ones_like(inputs["input_ids"])).last_hidden_state
    assert torch.equal(plain, first) and not torch.allclose(plain, second)


@pytest.mark.parametrize(("kind", "pooled"), [("bert", "dense"), ("relative", "mean"), ("local", "first")])
def test_texts_are_classified_by_what_is_pooled(kind: str, pooled: str) -> None:
    model, inputs = exact(QkvEncoderForSequenceClassification, kind), tiny.classes(tiny.text())
    assert model.config.pooling == pooled
    output = model(**inputs)
    hidden = model.model(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    for row, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        first = hidden[row, 0]
        vector = {"first": first, "mean": hidden[row, :length].mean(0)}.get(pooled)
        if vector is None:
            dense = model.model.pooler.dense
            vector = torch.tanh(dense.weight @ first + dense.bias)
        assert_close(output.logits[row], model.classifier.weight @ vector + model.classifier.bias)
    assert float(output.loss.detach()) == pytest.approx(mean_surprise(output.logits, inputs["labels"]))


def test_a_classifier_learns_numbers_or_several_labels_at_once() -> None:
    inputs = tiny.text()
    model = exact(QkvEncoderForSequenceClassification, num_labels=1)
    numbers = torch.tensor([0.5, -2.0])
    output = model(**inputs, labels=numbers)
    assert output.logits.shape == (tiny.BATCH, 1)
    squares = [
        (score - number) ** 2 for score, number in zip(output.logits[:, 0].tolist(), numbers.tolist(), strict=True)
    ]
    assert float(output.loss.detach()) == pytest.approx(mean(squares))

    model = exact(QkvEncoderForSequenceClassification)
    several = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    output = model(**inputs, labels=several)
    chances = [1 / (1 + math.exp(-score)) for score in output.logits.flatten().tolist()]
    answers = several.flatten().tolist()
    surprises = [-math.log(p if yes else 1 - p) for p, yes in zip(chances, answers, strict=True)]
    assert float(output.loss.detach()) == pytest.approx(mean(surprises))


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification", "regression"])
def test_the_problem_may_be_named(kind: str) -> None:
    # Whole numbers, of which only the config knows whether they are classes.
    model = exact(QkvEncoderForSequenceClassification, problem_type=kind)
    whole = torch.tensor([1, 0]) if kind.startswith("single") else torch.tensor([[1, 0, 1], [0, 0, 1]])
    output = model(**tiny.text(), labels=whole)
    expected = {
        "single_label_classification": lambda: mean_surprise(output.logits, whole),
        "multi_label_classification": lambda: torch.nn.BCEWithLogitsLoss()(output.logits, whole.double()).item(),
        "regression": lambda: torch.nn.MSELoss()(output.logits, whole.double()).item(),
    }[kind]()
    assert output.loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_tokens_are_labelled_one_by_one(smoothing: float) -> None:
    model, inputs = exact(QkvEncoderForTokenClassification, label_smoothing=smoothing), tiny.token_classes()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, tiny.LENGTH, tiny.LABELS)
    assert output.loss.item() == pytest.approx(mean_surprise(output.logits, inputs["labels"], smoothing))


def test_an_answer_is_its_first_and_its_last_token() -> None:
    model, inputs = exact(QkvEncoderForQuestionAnswering), tiny.spans()
    output = model(**inputs)
    assert output.start_logits.shape == output.end_logits.shape == (tiny.BATCH, tiny.LENGTH)
    halves = [
        mean_surprise(output.start_logits, inputs["start_positions"]),
        mean_surprise(output.end_logits, inputs["end_positions"]),
    ]
    assert output.loss.item() == pytest.approx(mean(halves))
    outside = model(**{**inputs, "start_positions": torch.tensor([1, 99]), "end_positions": torch.tensor([4, -1])})
    halves = [surprise(output.start_logits[0], 1), surprise(output.end_logits[0], 4)]
    assert outside.loss.item() == pytest.approx(mean(halves))
    assert model(**{**inputs, "end_positions": None}).loss is None


def test_each_choice_is_read_by_itself() -> None:
    model, inputs = exact(QkvEncoderForMultipleChoice), tiny.choices()
    output = model(**inputs)
    assert output.logits.shape == (tiny.BATCH, 3)
    assert output.loss.item() == pytest.approx(mean_surprise(output.logits, inputs["labels"]))
    alone = model(**{name: value[1:, 2:] for name, value in inputs.items() if name != "labels"}).logits
    assert_close(alone[0, 0], output.logits[1, 2])
