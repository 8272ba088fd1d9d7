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
from qkv.scripts.data.splits.seen import HASHES
from qkv.scripts.prediction import evaluated_data
from qkv.scripts.prediction import evaluation as module
from qkv.scripts.prediction.comparison import compare, intervals, resampled
from qkv.scripts.prediction.evaluated_data import table_tests
from qkv.scripts.prediction.evaluation import evaluate_parts, evaluate_rows, losses_of_rows
from qkv.scripts.prediction.source import open_source
from qkv.scripts.tasks.class_scores import MISSED
from qkv.scripts.tasks.metrics import measure


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
    assert intervals(evaluation([("a", "a")], "accuracy"), 50, seed=0) == {
        "accuracy": pytest.approx((0.2065, 1), rel=1e-3)
    }


def boxes(*sides: float) -> dict[str, list[object]]:
    """An image with an object at each of these places."""
    return {
        "boxes": [[side, 0, side + 9, 9] for side in sides],
        "labels": [0] * len(sides),
        "scores": [0.9] * len(sides),
    }


FOUND, NOTHING = (["B-X", "O"],) * 2, (["O", "O"],) * 2
# Answers, a metric that all resamples agree on, and its interval by the formula.
EQUAL = {
    "all right": ([("a", "a")] * 39, "accuracy", (39 / 42.8415, 1)),
    "all wrong": ([("a", "b")] * 39, "accuracy", (0, 3.8415 / 42.8415)),
    "two rows": ([("a", "a")] * 2, "exact_match", (2 / 5.8415, 1)),
    "macro F1": (
        [("a", "a")] * 36 + [("b", "b")] * 4,
        "f1_macro",
        (1 - np.hypot(3.8415 / 39.8415, 3.8415 / 7.8415) / 2, 1),
    ),
    "BLEU": ([("a b c d e", "a b c d e")] * 9, "bleu", (900 / 12.8415, 100)),
    "word errors": ([("a b", "a b")] * 9, "wer", (0, 3.8415 / 12.8415)),
    "rows without entities": ([FOUND] * 4 + [NOTHING] * 90, "seqeval", (4 / 7.8415, 1)),
    "images without objects": (
        [(boxes(3), boxes(3))] * 4 + [(boxes(), boxes())] * 20,
        "average_precision",
        (4 / 7.8415, 1),
    ),
    "sets of classes": ([(["a", "b"], ["a", "b"])] * 9, "multi_label", (1 - 3.8415 / 12.8415 / np.sqrt(2), 1)),
    "maps of contacts": ([(np.eye(8, k=4), np.eye(8, k=4))] * 9, "contacts", (9 / 12.8415, 1)),
    "equal numbers": ([(1.0, 1.0)] * 5, "mae", None),
}


@pytest.mark.parametrize("case", EQUAL)
def test_intervals_have_a_width_where_all_resamples_are_equal(case: str) -> None:
    answers, metric, expected = EQUAL[case]
    drawn = evaluation(answers, metric)
    names = {"seqeval": ("precision", "recall", "f1"), "average_precision": ("ap", "ap50")}
    names |= {"multi_label": ("f1_macro",), "contacts": ("f1", "exact_match")}
    found, differences = intervals(drawn, 20, seed=0), compare(drawn, drawn, 20, seed=0)
    for name in names.get(metric, [metric]):
        assert found.get(name) == (expected and pytest.approx(expected, rel=1e-4))
        low, high = differences[name]["interval"] or (0, 0)
        assert differences[name]["value"] == 0 and -low == high and (high > 0) == bool(expected)


def test_share_of_rows_has_the_interval_of_wilson() -> None:
    drawn = evaluation([("a", "a")] * 38 + [("a", "b")], "accuracy", "f1_macro")
    drawn.rows[:] = [
        {**row, "correct": one == other} for row, [(one, other)] in zip(drawn.rows, drawn.answers, strict=True)
    ]
    assert intervals(drawn, 20, seed=0)["accuracy"] == pytest.approx((0.8682, 0.9955), abs=1e-4)


def answers_of(name: str, random: np.random.Generator) -> list[tuple[object, object]]:
    """Twenty answers of the kind that a metric scores."""
    if name == "contacts":  # the first is too short for pairs
        sizes = [3, *random.integers(4, 12, 19)]
        return [(random.random((size, size)), random.integers(0, 2, (size, size))) for size in sizes]
    if name == "squad":  # every third question has no answer
        return [
            (said, [] if number % 3 else [said, "x"][: 1 + number % 2]) for number, said in enumerate("abcdé " * 4)
        ][:20]
    if name in ("bleu", "chrf", "exact_match"):
        texts = [" ".join(random.choice(list("abcdé"), 7)) for _ in range(40)]
        return list(zip(texts[:20], texts[20:], strict=True))
    names = random.choice(["a", "é", "c", "never right"], (20, 2), p=[0.6, 0.2, 0.15, 0.05]).tolist()
    return [(predicted if number % 5 else MISSED, true) for number, (predicted, true) in enumerate(names)]


@pytest.mark.parametrize(
    "name", ["accuracy", "f1_macro", "f1_weighted", "exact_match", "bleu", "chrf", "contacts", "squad"]
)
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
    assert next(table_tests(str(table), source, {})).sizes() == {"test": 5}
    own_runs.data(kind, tmp_path / "data", 3).rename(tmp_path / "data" / "test.jsonl")
    (tmp_path / "data" / "train.jsonl").write_text(table.read_text())
    assert next(table_tests(str(tmp_path / "data"), source, {})).sizes() == {"test": 3}


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
    task, calls = next(table_tests(str(own_runs.data(kind, tmp_path, 7)), source, {})), []
    source.model.register_forward_pre_hook(lambda *given: calls.append(given))
    together, batched = evaluate_rows(source, task), len(calls)
    monkeypatch.setattr(module, "TOGETHER", ())
    alone = evaluate_rows(source, task)
    assert batched < len(calls) - batched or kind in ("folds", "texts")
    assert [row["row"] for row in together.rows] == list(range(1, len(together.rows) + 1))
    np.testing.assert_allclose(together.sums, alone.sums, rtol=1e-4, atol=1e-5)
    for one, other in ((together.rows, alone.rows), ([together.metrics()], [alone.metrics()])):
        for row, expected in zip(one, other, strict=True):
            close = {
                key: pytest.approx(each, rel=1e-4, abs=1e-5) for key, each in expected.items() if type(each) is float
            }
            assert row == expected | close


@pytest.mark.costly(2)
@pytest.mark.parametrize("kind", ["classes", "numbers", "tags"])
def test_a_large_table_is_evaluated_in_parts(
    kind: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, table = open_source(str(run_of(kind))), own_runs.data(kind, tmp_path, 7)
    (tmp_path / "notes.odt").write_text("no table")
    table.write_text(table.read_text() + '{"none": "of its columns"}\n')
    whole = evaluate_parts(source, table_tests(str(tmp_path), source, {}))
    monkeypatch.setattr(evaluated_data, "PART", 3)
    parts = evaluate_parts(source, table_tests(str(tmp_path), source, {}))
    assert [*parts.rows] == [{**row, "loss": pytest.approx(row["loss"], rel=1e-5)} for row in whole.rows]
    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-6)
    one, other = parts.task, whole.task
    assert one.truncated == other.truncated
    assert one.data.report[HASHES]["test"].tolist() == other.data.report[HASHES]["test"].tolist()
    assert one.data.invalid_records.skipped == other.data.invalid_records.skipped != []


def test_losses_of_rows_are_those_of_the_model_or_none() -> None:
    logits, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    labels[0, 2:], labels[1] = -100, -100
    whole = cross_entropy(logits.flatten(0, 1), labels.flatten())
    task, model = SimpleNamespace(kind="fill-mask"), SimpleNamespace(config=SimpleNamespace())
    own = losses_of_rows(task, model, SimpleNamespace(logits=logits, loss=whole), labels)
    first, last = (cross_entropy(logits[row], labels[row]) for row in (0, 2))
    torch.testing.assert_close(own, torch.stack([first, torch.tensor(0.0), last]))
    assert losses_of_rows(task, model, SimpleNamespace(logits=logits, loss=whole * 1.01), labels) is None
