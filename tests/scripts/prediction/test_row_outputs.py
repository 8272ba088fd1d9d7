"""What is computed for rows together is what is computed for each by itself, for every kind of run and stock models."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import own_runs
import stock_folders
from qkv.scripts.prediction import row_outputs
from qkv.scripts.prediction.evaluated_data import table_test
from qkv.scripts.prediction.evaluation import evaluate_rows
from qkv.scripts.prediction.source import open_source

FAST = ("classes", "tags", "texts", "images", "folds")
ALONE = ("captions", "boxes", "speech", "ctc")
STOCK = {"stock classes": stock_folders.bert, "stock masked": stock_folders.masked_bert}
kinds = [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in own_runs.KINDS]


@pytest.mark.parametrize("kind", [*kinds, *STOCK])
def test_rows_together_are_rows_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = STOCK[kind](tmp_path / "model") if kind in STOCK else run_of(kind)
    table = own_runs.data(kind.removeprefix("stock "), tmp_path, 11, seed=3)
    source, options = open_source(str(model)), {}
    task = table_test(str(table), source, options)
    losses, made = [], row_outputs.losses_of_rows
    monkeypatch.setattr(row_outputs, "losses_of_rows", lambda *given: losses.append(made(*given)) or losses[-1])
    together = evaluate_rows(source, task)
    assert bool(losses) == (kind not in ALONE) and all(own is not None for own in losses)
    monkeypatch.setattr(row_outputs, "is_batched", lambda source, task: False)
    alone = evaluate_rows(source, task)
    assert together.sums == [pytest.approx(own, rel=1e-4, abs=1e-5) for own in alone.sums]
    assert [row.keys() for row in together.rows] == [row.keys() for row in alone.rows]
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
    given = row_outputs.losses_of_rows(stand_in("fill-mask"), SimpleNamespace(logits=logits, loss=expected), labels)
    own = [torch.nn.functional.cross_entropy(logits[row][labels[row] != -100], labels[row][labels[row] != -100])
           for row in (0, 2)]  # fmt: skip
    torch.testing.assert_close(given, torch.stack([own[0], torch.tensor(0.0), own[1]]))
    other = SimpleNamespace(logits=logits, loss=expected * 1.01)
    assert row_outputs.losses_of_rows(stand_in("fill-mask"), other, labels) is None
    assert row_outputs.losses_of_rows(stand_in("fill-mask"), other, labels[:, 1:]) is None


def test_a_classifier_that_cannot_pad_reads_rows_alone() -> None:
    task: Any = SimpleNamespace(in_batch_negatives=False)
    assert not row_outputs.is_batched(stand_in("text-classification", pad_token_id=None), task)
    assert row_outputs.is_batched(stand_in("text-classification", pad_token_id=0), task)
    assert row_outputs.is_batched(stand_in("text-generation", pad_token_id=None), task)
