"""Sorting texts: rows cut and padded, metrics of all answers, a sentence where there is nothing to learn."""

import pytest
import torch

import qkv
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import TextClassification
from recipes import recipe_of

TEXTS = {"train": ["aaa b", "b", "aaaaaaaaaaaaaaaa", "bb b"], "test": ["aa", "bb"]}
LABELS = {"train": [0, 1, 0, 1], "test": [0, 1]}
RECIPE = recipe_of(text=dict(tokenizer="characters", length=8))


@pytest.fixture
def task() -> Task:
    return TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS, LABELS, ["A", "B"]))


def test_texts_are_framed_and_cut(task: Task) -> None:
    batch = task.collate(task.train.__getitems__([1, 3]), [0, 1])
    decoded = [task.processor.decode(row) for row in batch["input_ids"]]
    assert decoded == ["<s>b</s><pad><pad><pad>", "<s>bb b</s>"]
    assert batch["attention_mask"].sum(1).tolist() == [3, 6] and batch["labels"].tolist() == [1, 1]
    assert task.train.lengths == [7, 3, 8, 6] and task.labels == ["A", "B"]


def test_metrics_are_of_all_answers(task: Task) -> None:
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    answers = task.answer(None, type("Outputs", (), {"logits": logits}), batch)
    assert answers == [(0, 0), (0, 1)] and task.count(batch) == 2
    found = task.measure({"loss": 1.0, "targets": 2.0}, answers)
    assert found == {"loss": 0.5, "accuracy": 0.5, "f1_macro": pytest.approx(1 / 3)}


def test_the_example_is_what_the_model_sees(task: Task) -> None:
    config = qkv.QkvEncoderConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=2, **task.config
    )
    model = qkv.QkvEncoderForSequenceClassification(config).eval()
    example = task.example(model)
    assert example.given == "aa" and example.expected["label"] in ("A", "B")


def test_texts_without_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="data='c' has no labels to learn; take data=django-paragraphs"):
        TextClassification(RECIPE, Corpus("c", "t", "s", TEXTS))
