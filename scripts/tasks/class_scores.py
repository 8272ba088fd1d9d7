"""F1 of classes: its means, from answers or their counts, and the scores of each class."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as spans_by_type
from sklearn.metrics import f1_score, precision_recall_fscore_support
from sklearn.preprocessing import MultiLabelBinarizer

MISSED = ""  # the predicted class of a word that the model did not read
NAMES = ("precision", "recall", "f1")
Scores = dict[str, float]


def f1(predictions: Sequence[Any], references: Sequence[Any], average: str) -> float:
    """Return the mean F1 of the classes, 0 for a class without a hit; `MISSED` is no class."""
    classes = sorted({*predictions, *references} - {MISSED}) if MISSED in predictions else None
    return f1_score(references, predictions, labels=classes, average=average, zero_division=0)


def class_counts(predictions: Sequence[Any], references: Sequence[Any]) -> Any:
    """Return the terms of each row in the sums of `f1_of_counts`: three one-hot rows, of right, predicted and true."""
    classes = {name: number for number, name in enumerate(sorted({*predictions, *references} - {MISSED}))}
    predicted, true = (np.array([classes.get(each, -1) for each in side]) for side in (predictions, references))
    columns = np.stack([np.where(predicted == true, true, -1), predicted, true], axis=1)
    rows, kinds = np.nonzero(columns >= 0)
    places = rows, kinds * len(classes) + columns[rows, kinds]
    return csr_array((np.ones(len(rows), np.int64), places), shape=(len(columns), 3 * len(classes)))


def f1_of_counts(sums: NDArray[Any], name: str) -> Scores:
    """Return the macro or weighted mean F1 of the classes that occur, by their numbers of answers."""
    right, predicted, true = np.reshape(sums, (3, -1))
    occurs = predicted + true > 0
    each = 2 * right[occurs] / (predicted + true)[occurs]
    return {name: float(np.average(each, weights=true[occurs] if name == "f1_weighted" else None))}


def multi_label(predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
    """Score sets of classes: F1 over all classes (micro), the mean of their F1 (macro), and the share of equal sets."""
    known, found, classes = binarized(references, predictions)
    means = ("micro", "macro") if classes else ()
    scores = {f"f1_{mean}": float(f1_score(known, found, average=mean, zero_division=0)) for mean in means}
    return {"f1_micro": 0.0, "f1_macro": 0.0, **scores, "exact_match": float((known == found).all(1).mean())}


def binarized(*sides: Sequence[Any]) -> tuple[Any, ...]:
    """Return sets of classes as rows of 0 and 1, those of each side, and the classes of the columns."""
    classes = sorted({*chain(*chain(*sides))})
    return *(MultiLabelBinarizer(classes=classes).fit_transform(sets) for sets in sides), classes


def class_scores(
    answers: Sequence[tuple[Any, Any]], names: Sequence[str], metrics: Sequence[str] = ()
) -> dict[str, Scores]:
    """Return precision, recall, F1 and count of each class or type of entity, the most frequent first.

    A class is given by its number or its name in `names`. Lists are tags, or with the metric `multi_label` sets of
    classes. Empty where answers are other things.
    """
    predicted, true = ([pair[side] for pair in answers] for side in (0, 1))
    options: dict[str, Any] = {"average": None, "zero_division": 0}
    kinds = {type(each) for each in true} if names else set()
    if "multi_label" in metrics:
        true, predicted, labels = binarized(true, predicted)
        columns: Any = precision_recall_fscore_support(true, predicted, **options) if labels else ((),) * 4
    elif kinds == {list}:
        predicted = [[tag if tag != MISSED else "O" for tag in row] for row in predicted]
        labels = sorted({kind for kind, *_ in get_entities(true + predicted)})
        columns = spans_by_type(true, predicted, **options) if labels else ((),) * 4
    elif kinds and kinds <= {int, str}:
        true, predicted = ([names[own] if isinstance(own, int) else own for own in side] for side in (true, predicted))
        labels = [name for name in names if name in {*true, *predicted}]
        columns = precision_recall_fscore_support(true, predicted, labels=labels, **options)
    else:
        return {}
    rows = [dict(zip((*NAMES, "count"), map(float, row), strict=True)) for row in zip(*columns, strict=True)]
    scores = {name: {**row, "count": int(row["count"])} for name, row in zip(labels, rows, strict=True)}
    return dict(sorted(scores.items(), key=lambda item: -item[1]["count"]))
