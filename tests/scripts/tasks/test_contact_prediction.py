"""Contacts: a label for each pair of residues, whatever tokens stand around a chain; scores and a picture."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from errors import raises_sentence
from qkv.scripts.data.text_columns import SecondaryStructures
from qkv.scripts.lab.baselines import contact_map
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks.contact_prediction import TEMPLATES, ContactPrediction
from qkv.scripts.training.run import build
from recipes import recipe_of

SEQUENCES = {"train": ["GGGAAACCC", "GCAAAAGC", "AUGGGAU"], "test": ["GGGAAACCC", "GCAAAAGC"]}
STRUCTURES = {"train": ["(((...)))", "((....))", "((...))"], "test": ["(((...)))", "((....))"]}
SMALL = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
MODELS = {
    "QkvEncoderForContactPrediction": SMALL | {"contact_head": "outer_product"},
    "QkvPairForContactPrediction": SMALL | {"pair_hidden_size": 4, "num_pair_attention_heads": 2},
}
each_model = pytest.mark.parametrize("architecture", TEMPLATES)


def task_of(architecture: str, tokenizer: str = "characters", length: int = 32) -> ContactPrediction:
    """A task of few chains."""
    text = dict(tokenizer=tokenizer, length=length, vocab_size=270)
    data = SecondaryStructures("c", "t", "s", SEQUENCES, targets=STRUCTURES)
    return ContactPrediction(recipe_of(architecture=architecture, text=text), data)


@each_model
def test_each_pair_of_residues_has_a_label(architecture: str) -> None:
    task = task_of(architecture)
    batch = task.collate(task.train.__getitems__([1, 0]), [0, 1])
    labels = batch["labels"]
    assert batch["input_ids"].shape == (2, 11 if "Encoder" in architecture else 9) and labels.shape == (2, 9, 9)
    assert labels[0, :8, :8].tolist() == contact_map("((....))").tolist()
    assert labels[1].tolist() == contact_map("(((...)))").tolist()
    assert bool((labels[0, 8] == -100).all() and (labels[0, :, 8] == -100).all())
    assert task.count(batch) == 64 + 81
    assert task.processor.decode(batch["input_ids"][0], skip_special_tokens=True) == "GCAAAAGC"


@each_model
def test_models_learn_them(architecture: str) -> None:
    words = [f"architecture={architecture}", f"model={MODELS[architecture]}"]
    task = task_of(architecture)
    model = build(recipe.load("fold-toy", words), task).eval()
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    with torch.no_grad():
        outputs = model(**batch, num_items_in_batch=1)
    answers = task.answer(model, outputs, batch)
    assert [prediction.shape for prediction, _ in answers] == [(9, 9), (8, 8)]
    assert np.array_equal(answers[1][1], contact_map("((....))"))
    scores = torch.tensor(np.concatenate([prediction.flatten() for prediction, _ in answers]))
    labels = torch.tensor(np.concatenate([contacts.flatten() for _, contacts in answers])).float()
    expected = torch.nn.functional.binary_cross_entropy(scores, labels, reduction="sum")
    assert outputs.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_perfect_map_is_scored_by_pairs_three_apart() -> None:
    task = task_of("QkvPairForContactPrediction")
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    answers = task.answer(None, SimpleNamespace(logits=batch["labels"] * 20.0 - 10), batch)
    metrics = task.measure({"loss": 1.0, "targets": 4.0}, answers)
    assert metrics["f1"] == metrics["exact_match"] == 1 and metrics["precision_l"] == pytest.approx((3 / 9 + 2 / 8) / 2)
    short = np.zeros((3, 3))  # without pairs that are scored
    assert task.shown((short, short)) == {"reference": [], "prediction": [], "score": 1.0}
    shown = [task.shown(answer)["prediction"] for answer in answers]
    assert shown == [[[0, 8], [1, 7], [2, 6]], [[0, 7], [1, 6]]]


@each_model
def test_residues_beyond_the_length_have_no_contacts(architecture: str) -> None:
    task = task_of(architecture, length=8)
    batch = task.collate(task.train.__getitems__([0]), None)
    kept = 6 if "Encoder" in architecture else 8
    assert batch["input_ids"].shape == (1, 8) and batch["labels"].shape == (1, kept, kept)
    assert batch["labels"][0].tolist() == contact_map("(((...)))")[:kept, :kept].tolist()
    assert task.truncated["texts"]["test"] == (2 if kept == 6 else 1)
    ((predicted, reference),) = task.answer(None, SimpleNamespace(logits=batch["labels"] * 20.0 - 10), batch)
    assert np.array_equal(reference, contact_map("(((...)))")) and predicted.shape == (9, 9)  # all of it is scored
    assert np.array_equal(predicted[:kept, :kept] > 0.5, reference[:kept, :kept] == 1) and predicted[kept:].max() == 0


def test_a_token_of_several_residues_is_refused() -> None:
    with raises_sentence("tokens", "residues", "text.tokenizer=characters"):
        task_of("QkvPairForContactPrediction", "words")


def test_maps_are_drawn(tmp_path: Path) -> None:
    task = task_of("QkvPairForContactPrediction")
    model = SimpleNamespace(device=torch.device("cpu"))
    answer = SimpleNamespace(logits=torch.zeros(2, 9, 9))
    drawn = type("Model", (), {"device": model.device, "__call__": lambda self, **inputs: answer})()
    assert list(task.products(drawn, tmp_path)) == ["contacts.png"]
    assert Image.open(tmp_path / "contacts.png").width > 1000
    assert task.sample() == {"prompt": "GGGAAACCC"}
