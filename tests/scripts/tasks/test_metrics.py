"""Metrics: the numbers of the libraries that define them, and those that one can work out by hand."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluate
import jiwer
import numpy as np
import pytest
import sacrebleu
from datasets import Dataset, Features, Value
from seqeval.metrics import f1_score as span_f1
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import own_runs
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import metrics, registry
from qkv.scripts.tasks.class_scores import class_scores
from qkv.scripts.tasks.metrics import METRICS, load, measure, signatures

ENGLISH = ["The cat sat on the mat.", "Où est la gare ?", "東京は大きい。", ""]
OTHERS = ["The cat sat on a mat.", "Où est le musée ?", "東京は広い。", "something"]
CLASSES, GUESSES = [0, 1, 2, 2, 2, 2], [0, 1, 1, 2, 2, 2]
SPANS, FOUND = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O"]], [["B-PER", "I-PER", "O", "O"], ["B-LOC", "O"]]
TALL, WIDE = [10.0, 20.0, 20.0, 40.0], [0.0, 5.0, 30.0, 10.0]
OBJECTS = [{"boxes": [TALL], "labels": [0]}, {"boxes": [WIDE], "labels": [1]}]
# A box that shares 0.62 with its object counts up to 0.6; a false one before a right one halves it.
DETECTED = [
    {"boxes": [[10.0, 20.0, 20.0, 32.4], WIDE], "labels": [0, 1], "scores": [0.9, 0.8]},
    {"boxes": [WIDE], "labels": [1], "scores": [0.7]},
]
NOTHING = {"boxes": [], "labels": [], "scores": []}
SILENCE = ["", "", ""]


def score(name: str, predictions: list, references: list) -> dict:
    return measure([name], predictions, references)


@pytest.mark.parametrize(
    ("name", "predictions", "references", "expected"),
    [
        ("accuracy", GUESSES, CLASSES, 5 / 6),
        # Class 0 is right; class 1 has precision 1/2 and recall 1, class 2 precision 1 and recall 3/4.
        ("f1_macro", GUESSES, CLASSES, (1 + 2 / 3 + 6 / 7) / 3),
        ("f1_weighted", GUESSES, CLASSES, (1 + 2 / 3 + 4 * 6 / 7) / 6),
        ("f1_macro", [0, 0], [1, 1], 0.0),
        ("exact_match", ["é", "e\u0301", " a", "", "b"], ["é", "é", "a", "", "b"], 3 / 5),
        # Two batches: each token costs one of four, each byte half a token.
        ("perplexity", [math.log(4) * 10, math.log(4) * 30], [10, 30], 4),
        ("bits_per_byte", [math.log(4) * 10, math.log(4) * 30], [20, 60], 1),
        ("perplexity", [1e6], [1], math.inf),
        ("bleu", OTHERS, ENGLISH, sacrebleu.corpus_bleu(OTHERS, [ENGLISH]).score),
        ("chrf", OTHERS, ENGLISH, sacrebleu.corpus_chrf(OTHERS, [ENGLISH]).score),
        ("bleu", OTHERS, list(zip(ENGLISH, OTHERS, strict=True)), 100),
        ("bleu", ["one two three four"] * 2, [["one two three four", "x"], ["one two three four"]], 100),
        ("bleu", SILENCE, ENGLISH[:3], 0),
        ("chrf", SILENCE, ENGLISH[:3], 0),
        ("wer", SILENCE, ENGLISH[:3], 1),
        ("cer", SILENCE, ENGLISH[:3], 1),
        ("wer", ["eins zwo drei"], ["eins zwei drei"], 1 / 3),
        ("cer", ["straße"], ["strasse"], 2 / 7),
        ("wer", OTHERS[:3], ENGLISH[:3], jiwer.wer(ENGLISH[:3], OTHERS[:3])),
        ("seqeval", FOUND, SPANS, {"precision": 0.5, "recall": 0.5, "f1": span_f1(SPANS, FOUND), "accuracy": 4 / 6}),
        ("seqeval", [["B-A", "O"]], [["B-A", "I-A"]], {"precision": 0, "recall": 0, "f1": 0, "accuracy": 0.5}),
        ("average_precision", DETECTED, OBJECTS, {"ap": 0.8 / 2, "ap50": 1.5 / 2, "ap75": 0.5 / 2}),
        ("average_precision", [NOTHING], OBJECTS[:1], {"ap": 0, "ap50": 0, "ap75": 0}),
        ("average_precision", [DETECTED[1], NOTHING], [OBJECTS[1], NOTHING], {"ap": 1, "ap50": 1, "ap75": 1}),
    ],
)
def test_figures_are_those_of_the_library_and_of_a_hand(
    name: str, predictions: list, references: list, expected: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = expected if isinstance(expected, dict) else {name: expected}
    assert score(name, predictions, references) == pytest.approx(wanted)
    assert capsys.readouterr().out == ""


def test_signatures_are_numbers_apart() -> None:
    found = signatures(["bleu", "exact_match", "chrf"])
    assert set(found) == {"bleu", "chrf"} and all(f"version:{sacrebleu.__version__}" in text for text in found.values())
    assert all(text.startswith("nrefs:1|case:mixed|") for text in found.values())
    assert all(isinstance(value, float) for value in measure(["bleu", "chrf"], OTHERS, ENGLISH).values())


@pytest.mark.parametrize("predictions", [[], ["a"]])
@pytest.mark.parametrize("name", METRICS)
def test_nothing_to_score_is_refused(name: str, predictions: list[str]) -> None:
    with pytest.raises(ValueError, match=name):
        measure([name], predictions, [])


def test_sets_of_classes_are_scored_by_their_members() -> None:
    """By hand: `a` is right once and wrong once, `b` right once and missed once; one set of four is equal."""
    found, true = [["a"], [], ["a", "b"], ["b", "a"]], [["a"], ["b"], ["b"], ["b"]]
    a, b = 2 * 1 / (2 * 1 + 2 + 0), 2 * 2 / (2 * 2 + 0 + 1)
    expected = {"f1_micro": 2 * 3 / (2 * 3 + 2 + 1), "f1_macro": (a + b) / 2, "exact_match": 1 / 4}
    assert score("multi_label", found, true) == pytest.approx(expected)
    assert score("multi_label", [[], []], [[], []])["exact_match"] == 1


def test_contacts_are_scored_by_their_rank_and_at_a_half() -> None:
    """By hand: of a chain of six, pairs three apart or more are (0, 3), (0, 4), (0, 5), (1, 4), (1, 5) and (2, 5)."""
    true, predicted = np.zeros((6, 6), int), np.zeros((6, 6))
    for first, last, score_of in ((0, 5, 0.9), (1, 4, 0.4), (0, 4, 0.6), (2, 5, 0.1), (3, 4, 1.0)):
        predicted[first, last] = predicted[last, first] = score_of
        true[first, last] = true[last, first] = first + last == 5
    expected = {"f1": 2 / (2 + 1 + 1), "precision_l5": 1, "precision_l2": 2 / 3, "precision_l": 2 / 6, "exact_match": 0}
    assert score("contacts", [predicted], [true]) == pytest.approx(expected)
    both = score("contacts", [predicted, true], [true, true])
    assert both["exact_match"] == 0.5 and both["f1"] == 2 * 3 / (2 * 3 + 1 + 1)
    short = true[:3, :3]  # which has no pairs
    assert score("contacts", [predicted, short], [true, short]) == pytest.approx(expected)
    assert set(score("contacts", [short], [short]).values()) == {0}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_modules_of_evaluate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded by its own loader without a network, they give the same of batches, through Arrow, as of all at once."""
    monkeypatch.setenv("HF_EVALUATE_OFFLINE", "1")
    module = evaluate.load(metrics.__file__, name, keep_in_memory=True)
    assert isinstance(load(name), evaluate.Metric) and module.description
    box = {"boxes": [[0.0, 0.0, 5.0, 5.0]], "labels": [0]}
    answers: dict[str, tuple[list, list]] = {
        **dict.fromkeys(("exact_match", "bleu", "chrf", "wer", "cer"), (OTHERS[:3], ENGLISH[:3])),
        **dict.fromkeys(("accuracy", "f1_macro", "f1_weighted"), (["a", "007", "7"], ["a", "7", "7"])),
        "seqeval": ([["B-A", "O"], ["O"]], [["B-A", "O"], ["B-A"]]),
        "multi_label": ([["a"], [], ["a", "b"]], [["a"], ["b"], ["b"]]),
        "contacts": ([np.eye(5)[::-1].tolist()] * 2, [np.eye(5).tolist()] * 2),
        "squad": (["Bo", "", "a b"], [["bo", "x"], [], ["b c"]]),
        "average_precision": ([{**box, "scores": [0.9]}] * 2, [box] * 2),
    }
    predictions, references = answers.get(name, ([1.0, 2.5, 4.0], [2.0, 2.0, 3.0]))
    for part in (slice(0, 1), slice(1, None)):
        module.add_batch(predictions=predictions[part], references=references[part])
    assert module.compute() == pytest.approx(measure([name], predictions, references))


def test_unknown_metric_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "load", lambda name, **options: (_ for _ in ()).throw(FileNotFoundError(name)))
    with pytest.raises(ValueError, match="metrics='rougee'"):
        registry.load(recipe.load("translate", ["data=numbers", "metrics=[rougee]"]))
    with pytest.raises(ValueError, match=r"metrics=\['cer'\] .*text-generation"):
        registry.load(recipe.load("docs-lm", ["data=numbers", "metrics=[cer]", "text.made=20"]))


class Length(evaluate.Metric):
    """The mean length of predictions, as a metric of the Hub may be."""

    def _info(self) -> evaluate.MetricInfo:
        kinds = Features({name: Value("string") for name in ("predictions", "references")})
        return evaluate.MetricInfo(description="", citation="", features=kinds)

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, object]:
        return {"length": np.float64(np.mean(list(map(len, predictions)))), **self.more}

    more: dict[str, object] = {}


def test_metrics_of_the_hub_stand_beside_those_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "load", lambda name, **options: Length(**options))
    load.cache_clear()
    task = registry.load(recipe.load("translate", ["data=numbers", "text.made=20", "metrics=[me/length, cer]"]))
    found = task.measure({"loss": 1.0, "targets": 1.0}, [("ab", "ab"), ("cdef", "cdeg")])
    assert found["length"] == 3 and isinstance(found["length"], float) and found["cer"] == pytest.approx(1 / 6)
    assert {"loss", "exact_match"} <= found.keys()
    monkeypatch.setattr(Length, "more", {"each": [1, 2]})
    with pytest.raises(ValueError, match="me/length"):
        task.measure({"loss": 1.0, "targets": 1.0}, [("ab", "ab")])
    load.cache_clear()


def test_evaluator_takes_our_models(run_of: Callable[[str], Path]) -> None:
    model, tokenizer = (
        auto.from_pretrained(run_of("classes")) for auto in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    classes = model.config.label2id
    rows = [row | {"label": classes[row["label"]]} for row in own_runs.rows("classes", 12, seed=4)]
    found = evaluate.evaluator("text-classification").compute(
        model, tokenizer=tokenizer, data=Dataset.from_list(rows), metric=load("accuracy"), label_mapping=classes,
    )  # fmt: skip
    answers = pipeline("text-classification", model=model, tokenizer=tokenizer)([row["text"] for row in rows])
    expected = [classes[answer["label"]] for answer in answers]
    assert found["accuracy"] == np.mean([one == row["label"] for one, row in zip(expected, rows, strict=True)])


def test_scores_of_each_class_are_those_of_its_confusions() -> None:
    rows = [("a", "a")] * 6 + [("b", "a")] * 2 + [("b", "b")] * 3 + [("", "b"), ("a", "c")]
    expected = {"a": (6 / 7, 6 / 8, 8), "b": (3 / 5, 3 / 4, 4), "c": (0, 0, 1)}
    names = ["c", "b", "a", "never seen"]
    numbered = [(names.index(one), names.index(other)) for one, other in rows if one]
    for answers, changed in ((rows, {}), (numbered, {"b": (3 / 5, 1.0, 3)})):
        scores = class_scores(answers, names)
        assert list(scores) == ["a", "b", "c"]
        for name, (precision, recall, count) in (expected | changed).items():
            f1 = 2 * precision * recall / (precision + recall or 1)
            assert scores[name] == pytest.approx({"precision": precision, "recall": recall, "f1": f1, "count": count})
    tags = [(["B-X", "I-X", ""], ["B-X", "I-X", "B-Y"]), (["O", "B-X", "O"], ["O", "O", "O"])]
    entities = class_scores(tags, ["O", "B-X", "I-X", "B-Y"])
    assert entities["X"] == pytest.approx({"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "count": 1})
    assert entities["Y"] == {"precision": 0, "recall": 0, "f1": 0, "count": 1}
    sets = class_scores([(["a"], ["a", "b"]), (["a", "b"], []), ([], ["b"])], ["a", "b"], ["multi_label"])
    assert sets["b"] == {"precision": 0, "recall": 0, "f1": 0, "count": 2}
    assert sets["a"] == pytest.approx({"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "count": 1})
    nothing = [
        ([], names, ["multi_label"]),
        ([], names),
        ([(1.5, 2.5)], []),
        ([({"boxes": []}, {"boxes": []})], names),
        ([(["O"], ["O"])], ["O"]),
    ]
    assert [class_scores(*given) for given in nothing] == [{}] * 5
