"""Rows alone and in batches, metrics of chosen rows, and intervals against formulas."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import own_runs
from evaluations import evaluation
from qkv.scripts.prediction import evaluation as module
from qkv.scripts.prediction.comparison import compare, intervals, resampled
from qkv.scripts.prediction.evaluated_data import table_test
from qkv.scripts.prediction.evaluation import evaluate_rows, losses_of_rows
from qkv.scripts.prediction.source import open_source
from qkv.scripts.tasks.metrics import MISSED, measure


def test_interval_covers_the_truth_nineteen_times_in_twenty() -> None:
    random, covered, rounds = np.random.default_rng(0), 0, 150
    for number in range(rounds):
        drawn = evaluation([("a", "a")] * 60, losses=random.exponential(2.0, 60).tolist())
        low, high = intervals(drawn, 200, seed=number)["loss"]
        covered += low <= 2.0 <= high
    assert 0.88 <= covered / rounds <= 0.99


def test_interval_of_a_mean_is_near_the_formula() -> None:
    losses = np.random.default_rng(1).exponential(2.0, 400)
    low, high = intervals(evaluation([("a", "a")] * 400, losses=losses.tolist()), 1000, seed=0)["loss"]
    error = 1.96 * losses.std(ddof=1) / 20
    assert (low, high) == pytest.approx((losses.mean() - error, losses.mean() + error), rel=0.03)


def test_intervals_follow_from_the_seed_and_need_two_rows() -> None:
    drawn = evaluation([("a", "a"), ("b", "a"), ("c", "c")] * 5, "accuracy")
    assert intervals(drawn, 50, seed=3) == intervals(drawn, 50, seed=3)
    assert intervals(evaluation([("a", "a")], "accuracy"), 50, seed=0) == {}


def answers_of(name: str, random: np.random.Generator) -> list[tuple[object, object]]:
    """Twenty answers of the kind that a metric scores."""
    if name == "contacts":  # the first is too short for pairs
        sizes = [3, *random.integers(4, 12, 19)]
        return [(random.random((size, size)), random.integers(0, 2, (size, size))) for size in sizes]
    if name in ("bleu", "chrf", "exact_match"):
        texts = [" ".join(random.choice(list("abcdé"), 7)) for _ in range(40)]
        return list(zip(texts[:20], texts[20:], strict=True))
    names = random.choice(["a", "é", "c", "never right"], (20, 2), p=[0.6, 0.2, 0.15, 0.05]).tolist()
    return [(predicted if number % 5 else MISSED, true) for number, (predicted, true) in enumerate(names)]


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "f1_weighted", "exact_match", "bleu", "chrf", "contacts"])
def test_metrics_of_resamples_are_those_of_the_chosen_rows(name: str) -> None:
    random = np.random.default_rng(0)
    answers = answers_of(name, random)
    drawn = resampled(evaluation(answers, name))
    for chosen in [*random.integers(0, 20, (5, 20)), np.array([0]), np.array([3, 3, 7])]:
        expected = measure([name], *zip(*(answers[number] for number in chosen), strict=True))
        assert {key: drawn(chosen)[key] for key in expected} == pytest.approx(expected)


def test_rows_with_several_answers_or_none_are_drawn_whole() -> None:
    several = evaluation([("x", "x")] * 3, "accuracy")
    several.answers[:] = [[("x", "x"), ("y", "x")], [], [("y", "y")]]
    assert resampled(several)(np.array([0, 0, 1]))["accuracy"] == 1 / 2
    assert resampled(several)(np.array([2, 1, 0]))["accuracy"] == pytest.approx(2 / 3)


def test_better_model_shows_in_its_difference() -> None:
    references = ["a", "b"] * 30
    good = evaluation(list(zip(references, references, strict=True)), "accuracy")
    wrong = ["b" if number % 3 == 0 else own for number, own in enumerate(references)]
    bad = evaluation(list(zip(wrong, references, strict=True)), "accuracy")
    compared, turned = compare(good, bad, 200, seed=0), compare(bad, good, 200, seed=0)
    low, high = compared["accuracy"]["interval"]
    assert compared["accuracy"]["value"] == pytest.approx(1 / 6) and 0 < low < 1 / 6 < high
    assert turned["accuracy"]["interval"] == pytest.approx((-high, -low))


@pytest.mark.parametrize("answers", [[("a", "a")], [("a", "b"), ("b", "a")]])
def test_other_rows_are_refused(answers: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="rows"):
        compare(evaluation([("a", "a"), ("b", "a")], "accuracy"), evaluation(answers, "accuracy"), 10, seed=0)


# Rows of a table ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classes", "tags", "images", "folds"])
@pytest.mark.costly(1)
def test_all_of_a_table_is_the_test_split_but_a_test_split_is_it_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    source, table = open_source(str(run_of(kind))), own_runs.data(kind, tmp_path, 5)
    assert table_test(str(table), source, {}).sizes() == {"test": 5}
    own_runs.data(kind, tmp_path / "data", 3).rename(tmp_path / "data" / "test.jsonl")
    (tmp_path / "data" / "train.jsonl").write_text(table.read_text())
    assert table_test(str(tmp_path / "data"), source, {}).sizes() == {"test": 3}


def test_metrics_of_chosen_rows_are_those_of_a_smaller_test() -> None:
    whole = evaluation([("a", "a"), ("b", "a"), ("b", "b")], "accuracy", losses=[1.0, 2.0, 6.0])
    assert whole.metrics() == {"loss": 3.0, "accuracy": pytest.approx(2 / 3)}
    assert whole.metrics([2, 2, 1]) == {"loss": pytest.approx(14 / 3), "accuracy": pytest.approx(2 / 3)}


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("numbers", "pairs", "targets", "responses", "masked")]


@pytest.mark.costly(3)
@pytest.mark.parametrize("kind", ["classes", "tags", "texts", "images", "folds", *SLOW])
def test_rows_get_in_a_batch_the_numbers_they_get_alone(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(str(run_of(kind)))
    task, calls = table_test(str(own_runs.data(kind, tmp_path, 7)), source, {}), []
    source.model.register_forward_pre_hook(lambda *given: calls.append(given))
    together, batched = evaluate_rows(source, task), len(calls)
    monkeypatch.setattr(module, "TOGETHER", ())
    alone = evaluate_rows(source, task)
    assert batched < len(calls) - batched or kind in ("folds", "texts")
    assert [row["row"] for row in together.rows] == list(range(1, len(together.rows) + 1))
    for one, other in (
        (together.rows, alone.rows),
        (together.sums, alone.sums),
        ([together.metrics()], [alone.metrics()]),
    ):
        for row, expected in zip(one, other, strict=True):
            close = {
                key: pytest.approx(each, rel=1e-4, abs=1e-5) for key, each in expected.items() if type(each) is float
            }
            assert row == expected | close


def test_losses_of_rows_are_those_of_the_model_or_none() -> None:
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    labels[0, 2:], labels[1] = -100, -100
    whole = cross_entropy(logits.flatten(0, 1), labels.flatten())
    task, model = SimpleNamespace(kind="fill-mask"), SimpleNamespace(config=SimpleNamespace())
    own = losses_of_rows(task, model, SimpleNamespace(logits=logits, loss=whole), labels)
    first, last = (cross_entropy(logits[row], labels[row]) for row in (0, 2))
    torch.testing.assert_close(own, torch.stack([first, torch.tensor(0.0), last]))
    assert losses_of_rows(task, model, SimpleNamespace(logits=logits, loss=whole * 1.01), labels) is None
