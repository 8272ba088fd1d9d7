"""What do simpler methods reach? Each measured on the evaluated splits of the same data."""

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Columns

# Metrics by split, for each method.
Baselines = dict[str, dict[str, dict[str, float]]]
ORDER = 5  # bytes that a byte of the n-gram model is guessed with, itself counted
BETWEEN = "\x00"  # documents


def evaluated(corpus: Corpus) -> list[str]:
    """The splits that are not for training."""
    return [name for name in corpus.texts if name != "train"]


def linear_models(corpus: Corpus) -> Baselines:
    """Logistic regression on the frequencies of words and of characters, weighted by how rare they are."""
    found: Baselines = {}
    for unit, options in {"words": {}, "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)}}.items():
        features = TfidfVectorizer(sublinear_tf=True, min_df=2, **options)
        machine = make_pipeline(features, LogisticRegression(C=10.0, max_iter=1000))
        machine.fit(corpus.texts["train"], corpus.labels["train"])
        found[f"TF-IDF of {unit} + logistic regression (scikit-learn)"] = {
            name: measure(["accuracy", "f1_macro"], machine.predict(corpus.texts[name]).tolist(), corpus.labels[name])
            for name in evaluated(corpus)
        }
    return found


def copied(corpus: Corpus, metrics: Sequence[str]) -> Baselines:
    """The text itself, as if it were its target."""
    return {
        "the source, copied": {
            name: measure(metrics, corpus.texts[name], corpus.targets[name]) for name in evaluated(corpus)
        }
    }


def most_frequent_token(train: Columns, special: Tensor, splits: dict[str, Columns]) -> Baselines:
    """The token that is most frequent in training, wherever one is asked for."""
    counts = train.columns["input_ids"].flatten().bincount()
    counts[special[special < len(counts)]] = 0
    best = int(counts.argmax())
    found = {}
    for name, split in splits.items():
        labels = split.columns["labels"]
        wanted = labels[labels != IGNORED]
        found[name] = {"accuracy": float((wanted == best).double().mean())}
    return {"the most frequent token": found}


def byte_model(corpus: Corpus) -> Baselines:
    """Bits per byte of counting which byte followed the last four."""
    train = as_bytes(corpus.texts["train"])
    found = {name: {"bits_per_byte": bits(train, as_bytes(corpus.texts[name]))} for name in evaluated(corpus)}
    return {f"{ORDER}-gram of bytes": found}


def as_bytes(texts: Sequence[str]) -> np.ndarray:
    """Documents as numbers from 0 to 255."""
    return np.frombuffer(BETWEEN.join(texts).encode(), dtype=np.uint8).astype(np.int64)


def bits(train: np.ndarray, test: np.ndarray, order: int = ORDER) -> float:
    """Mean bits of a byte of `test` under counts of `train`, longer contexts falling back on shorter ones.

    Source: Witten & Bell 1991, method C, https://doi.org/10.1109/18.87000
    """
    probability = np.full(len(test), 1 / 256)
    for length in range(order):
        seen, given = grams(train, length + 1), grams(test, length + 1)
        pair_count = counted(seen, given)
        # How often the context came, and how many different bytes followed it.
        context_count = counted(seen >> 8, given >> 8)
        kinds = counted(np.unique(seen) >> 8, given >> 8)
        reached = np.arange(len(test)) >= length
        total = np.maximum(context_count + kinds, 1)
        better = (pair_count + kinds * probability) / total
        probability = np.where(reached & (context_count > 0), better, probability)
    return float(-np.log2(probability).mean())


def grams(values: np.ndarray, length: int) -> np.ndarray:
    """The last `length` bytes up to each place as one number; bytes before the first count as 0."""
    found = np.zeros(len(values), dtype=np.int64)
    for back in range(length):
        found[back:] |= values[: len(values) - back] << (8 * back)
    return found


def counted(seen: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """How often each asked number was seen."""
    values, counts = np.unique(seen, return_counts=True)
    if not len(values):
        return np.zeros(len(asked), dtype=np.int64)
    place = np.minimum(np.searchsorted(values, asked), len(values) - 1)
    return np.where(values[place] == asked, counts[place], 0)
