"""Metrics in the form of `evaluate`: local ones, which need no network, and metrics of the Hub.

Ours are computed by the libraries that define them. `load("wer")` gives one, and so does `evaluate.load` of this file:
`evaluate.load("scripts/tasks/metrics.py", "wer").compute(predictions=["le chat"], references=["un chat"])`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from itertools import count, zip_longest
from operator import eq
from typing import Any

import evaluate
import jiwer
import numpy as np
from datasets import Features, List, Value
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from scipy.stats import pearsonr, spearmanr
from seqeval import metrics as spans
from sklearn.metrics import accuracy_score, mean_absolute_error, root_mean_squared_error

from qkv.scripts.common.words import did_you_mean
from qkv.scripts.tasks.class_scores import MISSED, Scores, class_counts, f1, f1_of_counts, multi_label
from qkv.scripts.tasks.fold_scores import fold_counts, fold_scores, folds
from qkv.scripts.tasks.squad import question_counts, question_scores, squad

# Contacts: least distance of two residues in the chain, probability threshold, and divisors of L for precision at L/5,
# L/2 and L.
APART, CONTACT, TOPS = 3, 0.5, {"precision_l5": 5, "precision_l2": 2, "precision_l": 1}


def perplexity(nats: Sequence[float], tokens: Sequence[int]) -> float:
    """Return e to the mean negative log-likelihood of a token, infinite where a diverged model overflows a float."""
    mean = math.fsum(nats) / sum(tokens)
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nats: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the bits per byte of text, which unlike perplexity compare models of different vocabularies."""
    return math.fsum(nats) / math.log(2) / sum(sizes)


def corpus_score(predictions: Sequence[str], references: Sequence[Any], scorer: Any) -> float:
    """Return the score of a corpus from 0 to 100, by sacrebleu; a reference is a text, or a list of them.

    Sources: BLEU of Papineni et al. 2002, https://aclanthology.org/P02-1040, as in Post 2018, A Call for Clarity in
        Reporting BLEU Scores, https://arxiv.org/abs/1804.08771; chrF2 of Popović 2015, https://aclanthology.org/W15-3049
    """
    several = [[text] if isinstance(text, str) else text for text in references]
    return scorer().corpus_score(predictions, [list(column) for column in zip_longest(*several)]).score


def error_rate(predictions: Sequence[str], references: Sequence[str], rate: Callable[..., float]) -> float:
    """Return the word (WER) or character (CER) error rate: the edits by the length of the references."""
    return rate(list(references), list(predictions))


def correlation(predictions: Sequence[float], references: Sequence[float], test: Callable[..., Any]) -> float:
    """Return the correlation of numbers or ranks; 0 where one side is constant."""
    both_vary = len(set(predictions)) > 1 and len(set(references)) > 1
    return test(predictions, references).statistic if both_vary else 0.0


def seqeval(predictions: Sequence[list[str]], references: Sequence[list[str]]) -> Scores:
    """Score named entities in rows of IOB tags: one is right when its type and both ends are."""
    measures = {"precision": spans.precision_score, "recall": spans.recall_score, "f1": spans.f1_score}
    rows = list(references), [["O" if tag == MISSED else tag for tag in row] for row in predictions]
    scores = {name: float(score(*rows, zero_division=0)) for name, score in measures.items()}
    return {**scores, "accuracy": float(spans.accuracy_score(list(references), list(predictions)))}


def average_precision(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Return COCO's average precision of boxes (left, top, right, bottom in pixels), also at overlaps of 0.5 and 0.75.

    Source: Lin et al. 2014, Microsoft COCO, §5, https://arxiv.org/abs/1405.0312, computed by its authors' pycocotools
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, detections = COCO(), list(annotations(predictions))
    classes = sorted({label for image in references for label in image["labels"]})
    images = [{"id": number} for number in range(len(references))]
    truth.dataset = {"images": images, "annotations": list(annotations(references)),
                     "categories": [{"id": label} for label in classes]}  # fmt: skip
    with redirect_stdout(StringIO()):
        truth.createIndex()
        scorer = COCOeval(truth, truth.loadRes(detections) if detections else COCO(), "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    # -1 means no references.
    stats = zip(("ap", "ap50", "ap75"), scorer.stats, strict=False)
    return {name: float(value) for name, value in stats if value >= 0}


def annotations(images: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the boxes of images as COCO annotations."""
    number = count(1)
    for image, objects in enumerate(images):
        for place, (left, top, right, bottom) in enumerate(objects["boxes"]):
            box = [left, top, right - left, bottom - top]
            score = {"score": objects["scores"][place]} if "scores" in objects else {}
            yield {"id": next(number), "image_id": image, "category_id": objects["labels"][place], "bbox": box,
                   "area": box[2] * box[3], "iscrowd": 0, **score}  # fmt: skip


def contacts(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Score maps of contacts (L, L): probabilities, and 1 for a contact and else 0, of pairs at least three apart.

    F1 at 0.5; as in CASP, the mean share of contacts among the L/5, L/2 and L most probable pairs of each chain, which
    cannot reach 1 where there are fewer contacts; the share of chains in which every pair is right.

    Source: Schaarschmidt et al. 2018, Assessment of contact predictions in CASP12, https://doi.org/10.1002/prot.25407
    """
    return contact_scores(np.sum(list(map(contact_counts, predictions, references)), axis=0))


def contact_counts(predicted: Any, reference: Any) -> NDArray[np.float64]:
    """Return the terms of a chain in the sums of `contact_scores`; zeros for one without pairs."""
    predicted, reference = np.asarray(predicted), np.asarray(reference)
    pairs = ranked_pairs(predicted)
    said, true = predicted[pairs] > CONTACT, reference[pairs] == 1
    if not len(true):
        return np.zeros(5 + len(TOPS))
    shares = [true[: max(len(reference) // part, 1)].mean() for part in TOPS.values()]
    return np.array([1, (said & true).sum(), said.sum(), true.sum(), *shares, (said == true).all()], dtype=np.float64)


def ranked_pairs(predicted: Any) -> tuple[Any, Any]:
    """Return the pairs of a map (L, L) that are at least three apart, the most probable first: (P,), (P,)."""
    first, last = np.triu_indices(len(predicted), APART)
    order = np.argsort(-predicted[first, last], kind="stable")
    return first[order], last[order]


def contact_scores(sums: Any) -> Scores:
    """Return the scores of chains by their number, their pairs that are right, predicted and true, and other sums."""
    chains, right, predicted, true, *others = map(float, sums)
    means = {name: total / max(chains, 1) for name, total in zip((*TOPS, "exact_match"), others, strict=True)}
    return {"f1": 2 * right / max(predicted + true, 1), **means}


# The terms of a row in sums, and the metric of such sums.
SUMMED: dict[str, Any] = {
    "contacts": (contact_counts, contact_scores),
    "folds": (fold_counts, fold_scores),
    "squad": (question_counts, question_scores),
}
SCORERS: dict[str, Any] = {"bleu": BLEU, "chrf": CHRF}
METRICS: dict[str, Callable[[Sequence[Any], Sequence[Any]], Any]] = {
    "accuracy": accuracy_score,
    "f1_macro": partial(f1, average="macro"),
    "f1_weighted": partial(f1, average="weighted"),
    "multi_label": multi_label,
    "exact_match": accuracy_score,
    "perplexity": perplexity,
    "bits_per_byte": bits_per_byte,
    "bleu": partial(corpus_score, scorer=BLEU),
    "chrf": partial(corpus_score, scorer=CHRF),
    "wer": partial(error_rate, rate=jiwer.wer),
    "cer": partial(error_rate, rate=jiwer.cer),
    "mae": mean_absolute_error,
    "rmse": root_mean_squared_error,
    "pearson": partial(correlation, test=pearsonr),
    "spearman": partial(correlation, test=spearmanr),
    "seqeval": seqeval,
    "average_precision": average_precision,
    "contacts": contacts,
    "folds": folds,
    "squad": squad,
}
STRING, NUMBER = Value("string"), Value("float64")
BOXES = {"boxes": List(List(NUMBER)), "labels": List(NUMBER)}
# Types of a prediction and a reference, by metric; others compare texts, classes or numbers.
TYPES: dict[str, list[tuple[Any, Any]]] = {
    **dict.fromkeys(("bleu", "chrf"), [(STRING, STRING), (STRING, List(STRING))]),
    "squad": [(STRING, List(STRING))],
    **dict.fromkeys(("seqeval", "multi_label"), [(List(STRING), List(STRING))]),
    "contacts": [(List(List(NUMBER)), List(List(NUMBER)))],
    "folds": [({"ca": List(List(NUMBER)), "plddt": List(NUMBER)}, List(List(NUMBER)))],
    "average_precision": [(BOXES | {"scores": List(NUMBER)}, BOXES)],
}


class LocalMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """The metric of METRICS that its `config_name` names."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in METRICS:
            known = did_you_mean(self.config_name, [*METRICS], "metrics")
            raise ValueError(f"there is no metric {self.config_name!r}; {known}")
        function, kinds = METRICS[self.config_name], TYPES.get(self.config_name, [(STRING, STRING), (NUMBER, NUMBER)])
        features = [Features({"predictions": one, "references": other}) for one, other in kinds]
        about = str(getattr(function, "func", function).__doc__)
        return evaluate.MetricInfo(description=about, citation="", features=features)

    def _compute(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        value = METRICS[self.config_name](predictions, references)
        return value if isinstance(value, dict) else {self.config_name: float(value)}


@cache
def load(name: str) -> Any:
    """Return a metric of ours, or of the Hub by its id; ValueError where it cannot be had."""
    if name in METRICS:
        return LocalMetric(config_name=name, keep_in_memory=True)
    try:
        return evaluate.load(name, keep_in_memory=True)
    except (OSError, ImportError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"metrics={name!r} is none of {', '.join(METRICS)}, nor a metric that the Hub gives: {reason}"
        ) from None


def measure(names: Sequence[str], predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Compute several metrics; ValueError when there is nothing to score, or not a reference for each."""
    if names and (not len(references) or len(predictions) != len(references)):
        raise ValueError(
            f"{', '.join(names)} of {len(predictions)} predictions and {len(references)} references: give as many "
            "of each, and at least one"
        )
    metrics: Scores = {}
    for name in names:
        metric = load(name)  # ours without a copy of the values in Arrow
        compute = metric._compute if name in METRICS else metric.compute
        for key, value in compute(predictions=predictions, references=references).items():
            if not isinstance(value, int | float | np.number):
                raise ValueError(f"metrics={name!r} gives {key}={value!r}, which is no number; leave it out")
            metrics[key] = float(value)
    return metrics


def parts_by_row(
    name: str, predictions: Sequence[Any], references: Sequence[Any]
) -> tuple[Any, Callable[[NDArray[Any]], Scores]] | None:
    """Return the terms of each row in the sums of a metric, and the metric of such sums; None for one without sums."""
    if METRICS.get(name) is accuracy_score:
        right = list(map(eq, predictions, references))
        return np.array([right, [True] * len(right)], np.int64).T, lambda sums: {name: float(sums[0] / sums[1])}
    if name in ("f1_macro", "f1_weighted"):
        return class_counts(predictions, references), partial(f1_of_counts, name=name)
    if name in SUMMED:
        counts, scores = SUMMED[name]
        return np.stack(list(map(counts, predictions, references))), scores
    if name in SCORERS:
        scorer = SCORERS[name]()
        parts = np.asarray(scorer._extract_corpus_statistics(list(predictions), [list(references)]))
        return parts, lambda sums: {name: scorer._compute_score_from_stats(sums.tolist()).score}
    return None


def signatures(names: Sequence[str]) -> dict[str, str]:
    """Return the signatures of sacrebleu's metrics, which say how they were computed."""
    scorers = {name: SCORERS[name]() for name in SCORERS if name in names}
    for scorer in scorers.values():
        scorer.corpus_score(["a"], [["a"]])  # which tells it the number of references
    return {name: str(scorer.get_signature()) for name, scorer in scorers.items()}
