"""Folding: labels for the atoms that an amino acid has, scores of CA against slow formulas, a picture."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import reference
from errors import raises_sentence
from qkv.configuration.configuration_folding import RESIDUES
from qkv.scripts.example_data.peptides import peptides
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks.metrics import load, measure
from qkv.scripts.tasks.protein_folding import ProteinFolding, draw_structures
from qkv.scripts.training.run import build
from recipes import recipe_of

SMALL = "{hidden_size: 8, num_hidden_layers: 1, structure_hidden_size: 8, num_structure_layers: 2}"


def task_of(length: int = 14, **text: Any) -> ProteinFolding:
    """A task of few peptides."""
    fields = dict(tokenizer="residues", length=length, made=20) | text
    own = recipe_of(architecture="QkvFoldingModel", text=fields)
    return ProteinFolding(own, peptides(recipe_of(text=dict(length=14, made=20))).divided(own))


def test_labels_are_of_known_atoms() -> None:
    task = task_of()
    batch = task.collate(task.train.__getitems__([0, 1, 2]), None)
    chains = task.data.texts["train"][:3]
    longest = max(map(len, chains))
    assert batch["input_ids"].shape == (3, longest) and batch["labels"].shape == (3, longest, 4, 3)
    for chain, ids, labels in zip(chains, batch["input_ids"].tolist(), batch["labels"], strict=True):
        assert "".join(RESIDUES[number] for number in ids[: len(chain)]) == chain
        assert bool((labels[: len(chain)] != -100).any(-1).all()) and bool((labels[len(chain) :] == -100).all())
    assert task.count(batch) == 12 * sum(map(len, chains))
    assert task.sample() == {"prompt": task.data.texts["test"][0]}


def test_atoms_that_no_amino_acid_has_are_unknown() -> None:
    task = task_of()
    data = task.data
    data.texts["test"][:] = ["XG"]
    data.targets["test"][:] = [str([[[0.0, 1.0, 2.0]] * 5] * 2)]
    labels = task.examples_of(data, "test", 14).columns["labels"][0]
    assert (labels != -100).any(-1).sum(-1).tolist() == [0, 4]  # an X has no atoms, glycine no CB


def test_models_learn_them_and_perfect_answers_are_perfect() -> None:
    task = task_of()
    model = build(recipe.load("fold-peptides", [f"model={SMALL}"]), task).eval()
    records = task.splits["test"].__getitems__([0, 1])
    batch = task.collate(records, None)
    with torch.no_grad():
        outputs = model(**batch, num_items_in_batch=task.count(batch))
    own = [task.collate([record], None) for record in records]
    with torch.no_grad():
        losses = [float(model(**each).loss) * task.count(each) for each in own]
    assert float(outputs.loss) == pytest.approx(sum(losses) / task.count(batch), rel=1e-5)
    answers = task.answer(model, outputs, batch)
    for (predicted, true), labels, each in zip(answers, batch["labels"], own, strict=True):
        length = each["input_ids"].shape[1]
        assert predicted["ca"].shape == true.shape == (length, 3) and np.array_equal(true, labels[:length, 1].numpy())
    perfect = SimpleNamespace(positions=batch["labels"], plddt=torch.ones(*batch["input_ids"].shape, 37))
    metrics = task.measure({"loss": 1.0, "targets": 4.0}, task.answer(model, perfect, batch))
    assert metrics == {"loss": 0.25, "lddt_ca": 1, "rmsd": pytest.approx(0, abs=1e-5), "plddt": 1}
    shown = task.shown(answers[0])
    assert shown["score"] == pytest.approx(answers[0][0]["plddt"].mean()) and "correct" not in shown


def test_scores_do_not_depend_on_the_pose_and_are_the_slow_ones() -> None:
    random = np.random.default_rng(0)
    true, points = random.normal(size=(2, 9, 3)) * 6
    true[4] = np.nan
    known = torch.tensor(~np.isnan(true).any(-1))
    tests = reference.local_distance_test(torch.tensor(points), torch.tensor(true).nan_to_num(), known)
    expected = float(np.mean([each for each, is_known in zip(tests, known, strict=True) if is_known]))
    answer = {"ca": points, "plddt": np.full(9, 0.5)}
    scores = measure(["folds"], [answer], [true])
    assert scores["lddt_ca"] == pytest.approx(expected) and scores["plddt"] == 0.5
    # Of all turns about all axes none is better than the superposition.
    centred, target = points[known] - points[known].mean(0), true[known] - true[known].mean(0)
    turns = np.linalg.qr(random.normal(size=(4000, 3, 3)))[0]
    turns *= np.linalg.det(turns)[:, None, None]
    best = min(math.sqrt(np.square(centred @ turn - target).sum(1).mean()) for turn in turns)
    assert scores["rmsd"] <= best <= scores["rmsd"] + 1
    moved = {**answer, "ca": points @ turns[0] + 7}
    assert measure(["folds"], [moved], [true]) == pytest.approx(scores)
    assert measure(["folds"], [{**answer, "ca": true * [1, 1, -1]}], [true])["rmsd"] > 1
    both = load("folds").compute(predictions=[answer, answer], references=[true, points])
    assert both["lddt_ca"] == pytest.approx((expected + 1) / 2)


def test_longer_chains_are_cut_and_other_tokens_refused() -> None:
    task = task_of(length=10)
    assert task.collate(task.train.__getitems__([0, 1, 2]), None)["labels"].shape[1] <= 10
    assert task.truncated["texts"]["train"] == sum(len(chain) > 10 for chain in task.data.texts["train"])
    with raises_sentence("tokenizer", "text.tokenizer=residues"):
        task_of(tokenizer="bytes")


def test_structures_are_drawn(tmp_path: Path) -> None:
    task = task_of()
    batch = task.collate(task.splits["test"].__getitems__([0, 1]), None)
    outputs = SimpleNamespace(positions=batch["labels"], plddt=torch.ones(*batch["input_ids"].shape, 37))
    draw_structures(task.answer(None, outputs, batch), tmp_path / "structures.png")
    assert Image.open(tmp_path / "structures.png").width > 500
