"""SQuAD's metric of answers: exact match and F1 of words.

Source: Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822, and the evaluation script of its authors
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Score answers, empty for none, by the best of several references: equal ones, and F1 of their words."""
    return question_scores(np.sum(list(map(question_counts, predictions, references)), axis=0))


def question_counts(predicted: str, references: Sequence[str]) -> NDArray[np.float64]:
    """Return the terms of a question in the sums of `question_scores`."""
    words, known = words_of(predicted), [own for own in map(words_of, references) if own] or [[]]
    return np.array([1, words in known, max(overlap(words, own) for own in known)], dtype=np.float64)


def words_of(answer: str) -> list[str]:
    """Return the words of an answer as SQuAD compares them: in lower case, without punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(PUNCTUATION)).split()


def overlap(words: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of words; of no answer whether both are none."""
    common = (Counter(words) & Counter(reference)).total()
    return 2 * common / (len(words) + len(reference)) if words and reference else float(words == reference)


def question_scores(sums: Any) -> dict[str, float]:
    """Return the scores of questions by their sums."""
    return dict(zip(("exact_match", "f1"), (sums[1:] / sums[0]).tolist(), strict=True))
