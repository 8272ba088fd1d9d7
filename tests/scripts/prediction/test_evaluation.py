"""Metrics of chosen rows, calibration, and rows that are computed together as they are alone."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import own_runs
import stock_folders
from evaluations import evaluation
from qkv.scripts.evaluate import calibration_error
from qkv.scripts.prediction import evaluation as evaluations
from qkv.scripts.prediction.evaluated_data import table_test
from qkv.scripts.prediction.source import open_source

FAST = ("classes", "tags", "texts", "images", "folds")
ALONE = ("captions", "boxes", "speech", "ctc")
STOCK = {"stock classes": stock_folders.bert, "stock masked": stock_folders.masked_bert}
kinds = [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in own_runs.KINDS]


def test_metrics_of_chosen_rows_are_those_of_a_smaller_test() -> None:
    whole = evaluation([("a", "a"), ("b", "a"), ("b", "b")], "accuracy", losses=[1.0, 2.0, 6.0])
    assert whole.metrics() == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert whole.metrics([2, 2, 1]) == {"loss": pytest.approx(14 / 3), "accuracy": pytest.approx(2 / 3)}


def test_calibration_against_the_plain_sum() -> None:
    random = np.random.default_rng(0)
    scores, correct = [*random.random(299).tolist(), 1.0], (random.random(300) < 0.5).tolist()
    total = 0.0
    for bottom in range(10):
        own = [i for i in range(300) if min(int(scores[i] * 10), 9) == bottom]
        total += abs(sum(scores[i] for i in own) - sum(correct[i] for i in own))
    rows: Any = [{"score": score, "correct": right} for score, right in zip(scores, correct, strict=True)]
    assert calibration_error(SimpleNamespace(rows=rows)) == pytest.approx(total / 300)


@pytest.mark.parametrize("kind", [*kinds, *STOCK])
def test_rows_together_are_rows_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = STOCK[kind](tmp_path / "model") if kind in STOCK else run_of(kind)
    table = own_runs.data(kind.removeprefix("stock "), tmp_path, 11, seed=3)
    source = open_source(str(model))
    task = table_test(str(table), source, {})
    losses, made = [], evaluations.losses_of_rows
    monkeypatch.setattr(evaluations, "losses_of_rows", lambda *given: losses.append(made(*given)) or losses[-1])
    together = evaluations.evaluate_rows(source, task)
    assert bool(losses) == (kind not in ALONE) and all(own is not None for own in losses)
    monkeypatch.setattr(evaluations, "is_batched", lambda source, task: False)
    alone = evaluations.evaluate_rows(source, task)
    assert together.sums == [pytest.approx(own, rel=1e-4, abs=1e-5) for own in alone.sums]
    for row, other in zip(together.rows, alone.rows, strict=True):
        numbers = {name: value for name, value in other.items() if isinstance(value, float)}
        assert {name: row[name] for name in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-5)
        assert {**row, **numbers} == other
    if kind in ("folds", "encoder-folds"):
        for answers in zip(sum(together.answers, []), sum(alone.answers, []), strict=True):
            for one, other in zip(*answers, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    elif kind != "numbers":
        assert together.answers == alone.answers


def stand_in(task: str, **config: Any) -> Any:
    return SimpleNamespace(task=task, medium="text", model=SimpleNamespace(config=SimpleNamespace(**config)))


def test_losses_are_those_of_the_model_or_none() -> None:
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    labels[0, 2:], labels[1] = -100, -100
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    losses_of_rows, source = evaluations.losses_of_rows, stand_in("fill-mask")
    own = [torch.nn.functional.cross_entropy(logits[row][labels[row] != -100], labels[row][labels[row] != -100])
           for row in (0, 2)]  # fmt: skip
    given = losses_of_rows(source, SimpleNamespace(logits=logits, loss=expected), labels)
    torch.testing.assert_close(given, torch.stack([own[0], torch.tensor(0.0), own[1]]))
    other = SimpleNamespace(logits=logits, loss=expected * 1.01)
    assert losses_of_rows(source, other, labels) is None and losses_of_rows(source, other, labels[:, 1:]) is None


def test_classifier_that_cannot_pad_reads_rows_alone() -> None:
    task: Any = SimpleNamespace(in_batch_negatives=False)
    assert not evaluations.is_batched(stand_in("text-classification", pad_token_id=None), task)
    assert evaluations.is_batched(stand_in("text-classification", pad_token_id=0), task)
    assert evaluations.is_batched(stand_in("text-generation", pad_token_id=None), task)
