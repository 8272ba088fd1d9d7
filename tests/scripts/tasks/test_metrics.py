"""Metrics: the numbers of the libraries that define them, and those that one can work out by hand."""

import math

import jiwer
import numpy as np
import pytest
import sacrebleu
from seqeval.metrics import f1_score as span_f1
from sklearn.metrics import f1_score

from qkv.scripts.tasks.metrics import METRICS, measure, signatures

ENGLISH = ["The cat sat on the mat.", "Où est la gare ?", "東京は大きい。", ""]
OTHERS = ["The cat sat on a mat.", "Où est le musée ?", "東京は広い。", "something"]


def score(name: str, predictions: list, references: list) -> dict:
    return measure([name], predictions, references)


def test_classes() -> None:
    predictions, references = [0, 1, 1, 2, 2, 2], [0, 1, 2, 2, 2, 0]
    assert score("accuracy", predictions, references) == {"accuracy": pytest.approx(4 / 6)}
    for average in ("macro", "weighted"):
        expected = f1_score(references, predictions, average=average)
        assert score(f"f1_{average}", predictions, references) == {f"f1_{average}": pytest.approx(expected)}
    # By hand: class 0 has precision 1 and recall 1/2, class 1 the other way round, class 2 has 2/3 of both.
    assert score("f1_macro", predictions, references)["f1_macro"] == pytest.approx((2 / 3 + 2 / 3 + 2 / 3) / 3)


def test_a_class_that_was_never_right_counts_as_nothing() -> None:
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


def test_a_text_may_have_more_references_than_another() -> None:
    found = score(
        "bleu", ["the cat sat on a mat", "one two three four"], [["the cat sat on a mat", "x"], ["one two three four"]]
    )
    assert found["bleu"] == pytest.approx(100)


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


@pytest.mark.parametrize("name", METRICS)
def test_nothing_to_score_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} of 0 predictions and 0 references: give as many of each"):
        measure([name], [], [])


def test_each_prediction_needs_a_reference() -> None:
    with pytest.raises(ValueError, match="1 predictions and 2 references"):
        measure(["exact_match"], ["a"], ["a", "b"])


def overlap(one: list[float], other: list[float]) -> float:
    """Shared by united area of two boxes."""
    shared = math.prod(max(0.0, min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis])) for axis in (0, 1))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)


def average_precision(predictions: list[dict], references: list[dict], label: int, least: float) -> float:
    """Of one class at one overlap: precision at 101 recalls, each the greatest of that recall or more."""
    ranked = sorted(
        ((score, image, box) for image, found in enumerate(predictions)
         for score, box, kind in zip(found["scores"], found["boxes"], found["labels"], strict=True) if kind == label),
        key=lambda row: -row[0],
    )  # fmt: skip
    wanted = {
        (image, place): box
        for image, there in enumerate(references)
        for place, (box, kind) in enumerate(zip(there["boxes"], there["labels"], strict=True))
        if kind == label
    }
    total, right, curve = len(wanted), 0, []
    for rank, (_, image, box) in enumerate(ranked, start=1):
        near = [(overlap(box, other), key) for key, other in wanted.items() if key[0] == image]
        best, key = max(near, default=(0.0, None))
        if best >= least:
            right += 1
            del wanted[key]
        curve.append((right / total, right / rank))
    recalls = [number / 100 for number in range(101)]
    return (
        sum(max((value for reached, value in curve if reached >= recall - 1e-9), default=0.0) for recall in recalls)
        / 101
    )


def test_average_precision_is_that_of_the_paper() -> None:
    random = np.random.default_rng(0)
    predictions, references = [], []
    for _ in range(12):
        corner = random.uniform(0, 50, (3, 2))
        boxes = np.concatenate((corner, corner + random.uniform(10, 40, (3, 2))), 1)
        labels = random.integers(0, 2, 3)
        references.append({"boxes": boxes.tolist(), "labels": labels.tolist()})
        shaken = np.concatenate((boxes + random.normal(0, 3, boxes.shape), boxes[:1] + 30))
        found = {"boxes": shaken.tolist(), "labels": [*labels.tolist(), 1], "scores": random.uniform(0, 1, 4).tolist()}
        predictions.append(found)
    found = score("average_precision", predictions, references)
    by_overlap = {
        least: sum(average_precision(predictions, references, label, least) for label in (0, 1)) / 2
        for least in np.linspace(0.5, 0.95, 10).round(2)
    }
    assert found["ap50"] == pytest.approx(by_overlap[0.5], abs=1e-6)
    assert found["ap75"] == pytest.approx(by_overlap[0.75], abs=1e-6)
    assert found["ap"] == pytest.approx(sum(by_overlap.values()) / 10, abs=1e-6) and 0.1 < found["ap"] < 0.9


def test_nothing_found_is_a_precision_of_zero(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"boxes": [], "labels": [], "scores": []}
    there = {"boxes": [[0.0, 0.0, 5.0, 5.0]], "labels": [0]}
    assert score("average_precision", [nothing], [there]) == {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}
    right = {**there, "scores": [0.9]}
    found = score("average_precision", [right, nothing], [there, nothing])
    assert found == pytest.approx({"ap": 1.0, "ap50": 1.0, "ap75": 1.0})
    assert capsys.readouterr().out == ""
