"""Resample the rows of evaluations, for the intervals of their metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric

from qkv.scripts.prediction.evaluation import Evaluation
from qkv.scripts.tasks.metrics import SCORERS, contact_counts, contact_scores
from qkv.scripts.tasks.task import Answer
from qkv.scripts.training.progress import progress_display

Chosen = NDArray[np.int64]
# Of predicted and true classes; scikit-learn takes a thousand times as long to say the same of every resample.
OF_CLASSES = ("accuracy", "f1_macro", "f1_weighted")
OF_CHAINS = "contacts"  # whose pairs are ranked once


def intervals(evaluation: Evaluation, resamples: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each metric, by a bootstrap over rows; none for a single row.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, §13.3, percentile intervals
    """
    if len(evaluation.rows) < 2:
        return {}
    return intervals_of(own for (own,) in bootstrap([evaluation], resamples, seed))


def bootstrap(evaluations: Sequence[Evaluation], resamples: int, seed: int) -> Iterator[list[dict[str, float]]]:
    """Draw rows with replacement, the same ones of each evaluation, and yield the metrics of each over them."""
    count, measures = len(evaluations[0].rows), [resampled(each) for each in evaluations]
    draws = np.random.default_rng(seed).integers(0, count, (resamples, count))
    with progress_display("resamples", resamples, is_main=True, unit="resample") as progress:
        for number, chosen in enumerate(draws, 1):
            yield [measure(chosen) for measure in measures]
            progress.update(number, "")


def intervals_of(resamples: Iterable[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the interval of each value but those that some resamples lack."""
    values: dict[str, list[float]] = {}
    for own in resamples:
        for name, value in own.items():
            values.setdefault(name, []).append(value)
    most = max(map(len, values.values()), default=0)
    return {name: interval(own) for name, own in values.items() if len(own) == most}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return what the middle 95 % of values lie between."""
    low, high = np.quantile(np.asarray(values, dtype=np.float64), (0.025, 0.975))
    return float(low), float(high)


def resampled(evaluation: Evaluation) -> Callable[[Chosen], dict[str, float]]:
    """Return the function that measures chosen rows; scores of corpora from what each text adds to them."""
    metrics = evaluation.task.metrics
    names = [name for name in metrics if name in SCORERS]
    pairs = [own[0] for own in evaluation.answers] if names else []
    counts = {name: corpus_counts(SCORERS[name](), pairs) for name in names}
    of_classes = [name for name in metrics if name in OF_CLASSES]
    confusion = confusions(evaluation.answers) if of_classes else None
    chains = [contact_counts(*own[0]) for own in evaluation.answers] if OF_CHAINS in metrics else []
    of_chains = np.stack(chains) if chains else None
    others = [name for name in metrics if name not in (*names, *of_classes, OF_CHAINS)]

    def measure(chosen: Chosen) -> dict[str, float]:
        values = evaluation.metrics(chosen.tolist(), others)
        if confusion is not None:
            scores = class_scores(confusion(chosen))
            values |= {name: scores[name] for name in of_classes}
        if of_chains is not None:
            values |= contact_scores(of_chains[chosen].sum(0))
        sums = {name: own[chosen].sum(0).tolist() for name, (_, own) in counts.items()}
        return values | {name: counts[name][0]._compute_score_from_stats(own).score for name, own in sums.items()}

    return measure


def confusions(answers: Sequence[Sequence[Answer]]) -> Callable[[Chosen], NDArray[Any]]:
    """Return the function that counts how often each true class of chosen rows was taken for each."""
    pairs = [pair for own in answers for pair in own]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for pair in pairs for name in pair))}
    cells = np.array([numbers[true] * len(numbers) + numbers[predicted] for predicted, true in pairs], dtype=np.int64)
    rows = np.repeat(np.arange(len(answers)), [len(own) for own in answers])

    def confusion(chosen: Chosen) -> NDArray[Any]:
        times = np.bincount(chosen, minlength=len(answers))
        return np.bincount(cells, times[rows], len(numbers) ** 2).reshape(len(numbers), -1)

    return confusion


def class_scores(confusion: NDArray[Any]) -> dict[str, float]:
    """Return accuracy and mean F1 of true classes (rows) and predicted ones (columns); a class without any is none."""
    right, true = confusion.diagonal(), confusion.sum(1)
    there = true + confusion.sum(0)
    known = there > 0
    f1 = 2 * right[known] / there[known]
    scores = (right.sum() / true.sum(), f1.mean(), (f1 * true[known]).sum() / true.sum())
    return dict(zip(OF_CLASSES, map(float, scores), strict=True))


def corpus_counts(scorer: Metric, pairs: Sequence[Answer]) -> tuple[Any, NDArray[np.int64]]:
    """Return a scorer of sacrebleu and what each text adds to its score, from which its own bootstrap resamples."""
    texts, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return scorer, np.asarray(scorer._extract_corpus_statistics(texts, [references]), dtype=np.int64)
