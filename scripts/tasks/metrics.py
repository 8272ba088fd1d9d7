"""Metrics that need no download, computed by the libraries that define them.

Each is a function of METRICS, of all predictions and their references: `METRICS["wer"](["le chat"], ["un chat"])`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import count, zip_longest
from typing import Any

import jiwer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from scipy.stats import pearsonr, spearmanr
from seqeval import metrics as spans
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, root_mean_squared_error

Metric = Callable[[Sequence[Any], Sequence[Any]], float | dict[str, float]]


def f1(average: str) -> Metric:
    """Return the mean F1 of the classes; a class that was never right counts as 0."""
    return lambda predictions, references: float(f1_score(references, predictions, average=average, zero_division=0))


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of texts that equal the reference."""
    return sum(one == other for one, other in zip(predictions, references, strict=True)) / len(references)


def perplexity(nats: Sequence[float], tokens: Sequence[int]) -> float:
    """Return e to the mean negative log-likelihood of a token, infinite where a diverged model overflows a float."""
    mean = math.fsum(nats) / sum(tokens)
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nats: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the bits per byte of text, which unlike perplexity compare models of different vocabularies."""
    return math.fsum(nats) / math.log(2) / sum(sizes)


def corpus_score(scorer: Any, predictions: Sequence[str], references: Sequence[Any]) -> float:
    """Return the score of a corpus from 0 to 100, by sacrebleu; a reference is a text, or a list of them."""
    several = [[text] if isinstance(text, str) else text for text in references]
    score: float = scorer.corpus_score(predictions, [list(column) for column in zip_longest(*several)]).score
    return score


def correlation(measure: Callable[..., Any]) -> Metric:
    """Return a correlation of numbers; 0 where one side is constant or has one number, for then there is none."""

    def metric(predictions: Sequence[float], references: Sequence[float]) -> float:
        varied = len(set(predictions)) > 1 and len(set(references)) > 1
        return float(measure(predictions, references).statistic) if varied else 0.0

    return metric


def seqeval(predictions: Sequence[list[str]], references: Sequence[list[str]]) -> dict[str, float]:
    """Score named entities in rows of IOB tags: one is right when its type and both ends are."""
    measures = {"precision": spans.precision_score, "recall": spans.recall_score, "f1": spans.f1_score}
    rows = list(references), list(predictions)
    scores = {name: float(score(*rows, zero_division=0)) for name, score in measures.items()}
    return {**scores, "accuracy": float(spans.accuracy_score(*rows))}


def average_precision(predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """Return the average precision of boxes as COCO has it: over classes, recalls, and overlaps (IoU) from 0.5 to 0.95.

    `ap50` and `ap75` are of one overlap. Predictions of each image are `boxes` (left, top, right, bottom in pixels),
    `labels` and `scores`, references boxes and labels.

    Source: Lin et al. 2014, Microsoft COCO, §5, https://arxiv.org/abs/1405.0312, computed by its authors' pycocotools
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    there, detections = COCO(), list(annotations(predictions))
    classes = sorted({label for image in references for label in image["labels"]})
    images = [{"id": number} for number in range(len(references))]
    there.dataset = {"images": images, "annotations": list(annotations(references)),
                     "categories": [{"id": label} for label in classes]}  # fmt: skip
    with redirect_stdout(StringIO()):
        there.createIndex()
        scorer = COCOeval(there, there.loadRes(detections) if detections else COCO(), "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    # -1 says that there were no references.
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


# BLEU: Post 2018, A Call for Clarity in Reporting BLEU Scores, https://arxiv.org/abs/1804.08771; chrF2: Popović 2015,
# https://aclanthology.org/W15-3049
SCORERS: dict[str, Any] = {"bleu": BLEU, "chrf": CHRF}
METRICS: dict[str, Metric] = {
    "accuracy": lambda predictions, references: float(accuracy_score(references, predictions)),
    "f1_macro": f1("macro"),
    "f1_weighted": f1("weighted"),
    "exact_match": exact_match,
    "perplexity": perplexity,
    "bits_per_byte": bits_per_byte,
    "bleu": lambda predictions, references: corpus_score(BLEU(), predictions, references),
    "chrf": lambda predictions, references: corpus_score(CHRF(), predictions, references),
    "wer": lambda predictions, references: float(jiwer.wer(list(references), list(predictions))),
    "cer": lambda predictions, references: float(jiwer.cer(list(references), list(predictions))),
    "mae": lambda predictions, references: float(mean_absolute_error(references, predictions)),
    "rmse": lambda predictions, references: float(root_mean_squared_error(references, predictions)),
    "pearson": correlation(pearsonr),
    "spearman": correlation(spearmanr),
    "seqeval": seqeval,
    "average_precision": average_precision,
}


def measure(names: Sequence[str], predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """Compute several metrics; ValueError when there is nothing to score, or not a reference for each."""
    if names and (not len(references) or len(predictions) != len(references)):
        raise ValueError(
            f"{', '.join(names)} of {len(predictions)} predictions and {len(references)} references: give as many "
            "of each, and at least one"
        )
    metrics: dict[str, float] = {}
    for name in names:
        value = METRICS[name](predictions, references)
        metrics |= value if isinstance(value, dict) else {name: value}
    return metrics


def signatures(names: Sequence[str]) -> dict[str, str]:
    """Return the signatures of sacrebleu's metrics, which say how they were computed."""
    lines = {}
    for name, kind in SCORERS.items():
        if name in names:
            scorer = kind()
            corpus_score(scorer, ["a"], ["a"])  # which tells it the number of references
            lines[name] = str(scorer.get_signature())
    return lines
