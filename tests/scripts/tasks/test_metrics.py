"""Metrics: the numbers of the libraries that define them, and those that one can work out by hand."""

import math
from collections.abc import Callable
from pathlib import Path

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
from qkv.scripts.tasks.metrics import METRICS, load, measure, signatures

ENGLISH = ["The cat sat on the mat.", "Où est la gare ?", "東京は大きい。", ""]
OTHERS = ["The cat sat on a mat.", "Où est le musée ?", "東京は広い。", "something"]


def score(name: str, predictions: list, references: list) -> dict:
    return measure([name], predictions, references)


def test_classes() -> None:
    predictions, references = [0, 1, 1, 2, 2, 2], [0, 1, 2, 2, 2, 2]
    assert score("accuracy", predictions, references) == {"accuracy": pytest.approx(5 / 6)}
    # By hand: class 0 is right; class 1 has precision 1/2 and recall 1, class 2 precision 1 and recall 3/4.
    assert score("f1_macro", predictions, references) == {"f1_macro": pytest.approx((1 + 2 / 3 + 6 / 7) / 3)}
    assert score("f1_weighted", predictions, references) == {"f1_weighted": pytest.approx((1 + 2 / 3 + 4 * 6 / 7) / 6)}
    assert score("f1_macro", [0, 0], [1, 1]) == {"f1_macro": 0.0}


def test_a_match_is_exact_to_the_character() -> None:
    predictions = ["é", "e\u0301", " a", "", "b"]
    assert score("exact_match", predictions, ["é", "é", "a", "", "b"]) == {"exact_match": 3 / 5}


def test_bits_are_counted_over_bytes_and_perplexity_over_tokens() -> None:
    # Two batches, each token costs one of four, each byte half a token.
    nats, tokens = [math.log(4) * 10, math.log(4) * 30], [10, 30]
    assert score("perplexity", nats, tokens) == {"perplexity": pytest.approx(4)}
    assert score("bits_per_byte", nats, [20, 60]) == {"bits_per_byte": pytest.approx(1)}
    assert score("perplexity", [1e6], [1]) == {"perplexity": math.inf}


@pytest.mark.parametrize(
    ("name", "direct"), [("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf)], ids=["bleu", "chrf"]
)
def test_translations_are_scored_by_sacrebleu(name: str, direct: object) -> None:
    found = score(name, OTHERS, ENGLISH)
    assert found[name] == pytest.approx(direct(OTHERS, [ENGLISH]).score) and 0 < found[name] < 100
    assert score(name, ENGLISH[:3], ENGLISH[:3])[name] == pytest.approx(100)
    several = [[one, other] for one, other in zip(ENGLISH, OTHERS, strict=True)]
    assert score(name, OTHERS, several)[name] == pytest.approx(direct(OTHERS, [ENGLISH, OTHERS]).score)
    assert score(name, ["one two three four"] * 2, [["one two three four", "x"], ["one two three four"]])[name] > 99


def test_nothing_said_is_nothing_right() -> None:
    silence = [""] * 3
    assert measure(["exact_match", "bleu", "chrf"], silence, ENGLISH[:3]) == {"exact_match": 0, "bleu": 0, "chrf": 0}
    assert measure(["wer", "cer"], silence, ENGLISH[:3]) == {"wer": 1, "cer": 1}


@pytest.mark.parametrize(("name", "direct"), [("wer", jiwer.wer), ("cer", jiwer.cer)], ids=["wer", "cer"])
def test_speech_is_scored_by_jiwer(name: str, direct: object) -> None:
    assert score(name, OTHERS, ENGLISH[:3] + ["anything"])[name] == direct(ENGLISH[:3] + ["anything"], OTHERS)
    assert score(name, ENGLISH, ENGLISH)[name] == 0


def test_one_of_three_words_is_wrong() -> None:
    assert score("wer", ["eins zwo drei"], ["eins zwei drei"])["wer"] == pytest.approx(1 / 3)
    assert score("cer", ["straße"], ["strasse"])["cer"] == pytest.approx(2 / 7)


def test_spans_are_scored_whole() -> None:
    references = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O"]]
    predictions = [["B-PER", "I-PER", "O", "O"], ["B-LOC", "O"]]
    found = score("seqeval", predictions, references)
    assert found == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": pytest.approx(4 / 6)}
    assert found["f1"] == span_f1(references, predictions)
    assert score("seqeval", [["B-PER", "O"]], [["B-PER", "I-PER"]])["f1"] == 0


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


def test_average_precision_is_over_classes_recalls_and_overlaps() -> None:
    """By hand: a box that shares 0.62 with its object counts up to 0.6; a false one before a right one halves it."""
    tall, wide = [10.0, 20.0, 20.0, 40.0], [0.0, 5.0, 30.0, 10.0]
    references = [{"boxes": [tall], "labels": [0]}, {"boxes": [wide], "labels": [1]}]
    predictions = [
        {"boxes": [[10.0, 20.0, 20.0, 32.4], wide], "labels": [0, 1], "scores": [0.9, 0.8]},
        {"boxes": [wide], "labels": [1], "scores": [0.7]},
    ]
    expected = {"ap": (0.3 + 0.5) / 2, "ap50": (1 + 0.5) / 2, "ap75": (0 + 0.5) / 2}
    assert score("average_precision", predictions, references) == pytest.approx(expected)


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


def test_nothing_found_is_a_precision_of_zero(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"boxes": [], "labels": [], "scores": []}
    there = {"boxes": [[0.0, 0.0, 5.0, 5.0]], "labels": [0]}
    assert score("average_precision", [nothing], [there]) == {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}
    right = {**there, "scores": [0.9]}
    found = score("average_precision", [right, nothing], [there, nothing])
    assert found == pytest.approx({"ap": 1.0, "ap50": 1.0, "ap75": 1.0})
    assert capsys.readouterr().out == ""


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
        "contacts": ([np.eye(5)[::-1].tolist()] * 2, [np.eye(5).tolist()] * 2),
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
