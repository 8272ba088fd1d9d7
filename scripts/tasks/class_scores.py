"""The scores of each class, beside metrics of all."""

from collections.abc import Sequence
from typing import Any

from seqeval.metrics.sequence_labeling import get_entities
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as spans_by_type
from sklearn.metrics import precision_recall_fscore_support

from qkv.scripts.tasks.metrics import MISSED, Scores, binarized

NAMES = ("precision", "recall", "f1")


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
