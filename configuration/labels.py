"""Labels of classes: numbered from 0 on without gaps, in the order of their numbers."""

from reprlib import repr as shortened
from typing import Any

Labels = dict[int, Any]


def numbered(id2label: object) -> Labels | None:
    """Return labels by their numbers, which JSON spells, in order; ValueError where they are not those of classes.

    Scores are read in this order, whatever the order of a file.
    """
    if id2label is None:
        return None
    if not isinstance(id2label, dict):
        raise ValueError(f"id2label={shortened(id2label)} is not a dict of numbers and labels such as {{0: 'cat'}}")
    labels = {str(number): label for number, label in id2label.items()}
    if labels.keys() != set(map(str, range(len(labels)))) or len(labels) != len(id2label):
        raise ValueError(
            f"id2label={shortened(id2label)} does not number its labels 0, 1, … without gaps; number them so"
        )
    for label in labels.values():
        if not isinstance(label, str | int):
            raise ValueError(f"id2label={shortened(id2label)} has the label {label!r}, expected a text")
    return {number: labels[str(number)] for number in range(len(labels))}


def check_numbers(label2id: object, *, labelled: bool) -> None:
    """Raise ValueError where labels do not have numbers, as numbers or as texts, and where there are no labels.

    transformers would replace the numbers of labels that stand without `id2label`.
    """
    if label2id is None:
        return
    numbers = label2id.values() if isinstance(label2id, dict) else [None]
    if not all(type(number) is int or (isinstance(number, str) and number.isdecimal()) for number in numbers):
        raise ValueError(f"label2id={shortened(label2id)} is not a dict of labels and numbers such as {{'cat': 0}}")
    if not labelled:
        raise ValueError(f"label2id={shortened(label2id)} says nothing without id2label; give both, or num_labels")
