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
import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from scipy.stats import pearsonr, spearmanr
from seqeval import metrics as spans
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, root_mean_squared_error

# Of contacts: how far apart the residues of a pair are at least, the probability above which it is one, and of which
# part of L the most probable pairs are.
APART, CONTACT, TOPS = 3, 0.5, {"precision_l5": 5, "precision_l2": 2, "precision_l": 1}
Metric = Callable[[Sequence[Any], Sequence[Any]], float | dict[str, float]]


def accuracy(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Return the share of right classes."""
    return float(accuracy_score(references, predictions))


def f1_macro(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Return the mean F1 of the classes, each counted alike; a class that was never right counts as 0."""
    return float(f1_score(references, predictions, average="macro", zero_division=0))


def f1_weighted(predictions: Sequence[Any], references: Sequence[Any]) -> float:
    """Return the mean F1 of the classes, each counted by its references; a class that was never right counts as 0."""
    return float(f1_score(references, predictions, average="weighted", zero_division=0))


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


def bleu(predictions: Sequence[str], references: Sequence[Any]) -> float:
    """Return the overlap with references in runs of one to four words, from 0 to 100, by sacrebleu.

    Source: Papineni et al. 2002, https://aclanthology.org/P02-1040; as in Post 2018, A Call for Clarity in Reporting
        BLEU Scores, https://arxiv.org/abs/1804.08771
    """
    return corpus_score(BLEU(), predictions, references)


def chrf(predictions: Sequence[str], references: Sequence[Any]) -> float:
    """Return the overlap with references in runs of one to six characters, chrF2 from 0 to 100, by sacrebleu.

    Source: Popović 2015, https://aclanthology.org/W15-3049
    """
    return corpus_score(CHRF(), predictions, references)


def wer(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Return the word error rate: words to insert, delete and replace, by the words of the references."""
    return float(jiwer.wer(list(references), list(predictions)))


def cer(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Return the character error rate: characters to insert, delete and replace, by those of the references."""
    return float(jiwer.cer(list(references), list(predictions)))


def mae(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Return the mean absolute error of numbers."""
    return float(mean_absolute_error(references, predictions))


def rmse(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Return the root of the mean squared error of numbers."""
    return float(root_mean_squared_error(references, predictions))


def pearson(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Return the linear correlation of numbers; 0 where one side is constant or has one number, for then is none."""
    return float(pearsonr(predictions, references).statistic) if both_vary(predictions, references) else 0.0


def spearman(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Return the correlation of the ranks of numbers; 0 where one side is constant or has one number."""
    return float(spearmanr(predictions, references).statistic) if both_vary(predictions, references) else 0.0


def both_vary(predictions: Sequence[float], references: Sequence[float]) -> bool:
    """Tell whether there are different numbers on both sides, without which there is no correlation."""
    return len(set(predictions)) > 1 and len(set(references)) > 1


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


def contacts(predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """Score maps of contacts (L, L): probabilities and, of the same chains of L residues, 1 for a contact and else 0.

    Of pairs at least three apart: F1 at 0.5; as in CASP, the mean share of contacts among the L/5, L/2 and L most
    probable pairs of each chain, which cannot reach 1 where there are fewer contacts; the share of chains in which
    every pair is right. Chains of three residues or fewer have no such pairs.

    Source: Schaarschmidt et al. 2018, Assessment of contact predictions in CASP12, https://doi.org/10.1002/prot.25407
    """
    return contact_scores(np.sum(list(map(contact_counts, predictions, references)), axis=0))


def contact_counts(predicted: Any, reference: Any) -> NDArray[np.float64]:
    """Return what a chain adds to the sums of `contact_scores`."""
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


def contact_scores(sums: Any) -> dict[str, float]:
    """Return the scores of chains by their number, their pairs that are right, predicted and true, and other sums."""
    chains, right, predicted, true, *others = map(float, sums)
    names = (*TOPS, "exact_match")
    means = {name: total / max(chains, 1) for name, total in zip(names, others, strict=True)}
    return {"f1": 2 * right / max(predicted + true, 1), **means}


SCORERS: dict[str, Any] = {"bleu": BLEU, "chrf": CHRF}
METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1_macro": f1_macro,
    "f1_weighted": f1_weighted,
    "exact_match": exact_match,
    "perplexity": perplexity,
    "bits_per_byte": bits_per_byte,
    "bleu": bleu,
    "chrf": chrf,
    "wer": wer,
    "cer": cer,
    "mae": mae,
    "rmse": rmse,
    "pearson": pearson,
    "spearman": spearman,
    "seqeval": seqeval,
    "average_precision": average_precision,
    "contacts": contacts,
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
