"""Baselines of example data, which know how these were made: digits, drawings of digits, and tunes."""

from collections import Counter
from collections.abc import Mapping
from math import log, log2
from typing import Any

import numpy as np
from sklearn.svm import SVC

from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.examples import Columns
from qkv.scripts.example_data.digits import LEVELS, SIDE, as_words, parse
from qkv.scripts.example_data.tune_grammar import BARS, ROW, bits
from qkv.scripts.example_data.tunes import score_tunes
from qkv.scripts.tasks.prompted_generation import PromptedGeneration

# Metrics by split, for each method.
Baselines = dict[str, dict[str, dict[str, float]]]
ANY = "*"  # in place of the token before last where it does not matter


def evaluated(corpus: Corpus) -> list[str]:
    """Return the splits that are not for training."""
    return [name for name in corpus.texts if name != "train"]


def support_vectors(train: Columns, splits: Mapping[str, Columns]) -> Baselines:
    """Measure the accuracy of scikit-learn's support vector machine, set as in its own digits example."""
    machine = SVC(gamma=0.001).fit(*grey_levels(train))
    scores = {name: {"accuracy": float(machine.score(*grey_levels(split)))} for name, split in splits.items()}
    return {"SVM (scikit-learn)": scores}


def grey_levels(digits: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return digits as scikit-learn has them, rows of 64 levels from 0 to 16, and their labels."""
    levels = (digits.columns["pixel_values"][:, 0].flatten(1) + 1) * 8
    return levels.numpy(), digits.columns["labels"].numpy()


def drawings(task: PromptedGeneration) -> Baselines:
    """Score drawings of people, and images whose pixels depend on caption and place alone.

    The chance of each level is counted at each pixel by caption, (64, 17), smoothed by a tenth of an image.
    """
    counts: dict[str, np.ndarray] = {}
    corpus, score = task.corpus, task.prompted.score
    for prompt, drawing in zip(corpus.texts["train"], corpus.targets["train"], strict=True):
        count = counts.setdefault(prompt, np.full((SIDE * SIDE, LEVELS), 0.1))
        count[np.arange(SIDE * SIDE), parse(drawing)] += 1
    random, people, alone = np.random.default_rng(0), {}, {}
    for name in evaluated(corpus):
        prompts, drawn = corpus.texts[name], corpus.targets[name]
        people[name] = score(prompts, drawn)
        tables = np.stack([counts[prompt] / counts[prompt].sum(1, keepdims=True) for prompt in prompts])  # (N, 64, 17)
        seen = np.take_along_axis(tables, np.stack(list(map(parse, drawn)))[..., None], axis=2)
        draws = (tables.cumsum(2) < random.uniform(size=(*tables.shape[:2], 1))).sum(2).clip(max=LEVELS - 1)
        mean = float(-np.log2(seen).mean())
        alone[name] = {"loss": mean / log2(np.e), "bits_per_pixel": mean} | score(prompts, list(map(as_words, draws)))
    return {"what people drew": people, "each pixel by itself": alone}


def tunes(task: PromptedGeneration) -> Baselines:
    """Score the rules themselves, which are the optimum, and a trigram model of the training."""
    lawful, near, corpus = {}, {}, task.corpus
    counts: Counter[tuple[str, ...]] = Counter()
    for text in corpus.targets["train"]:
        for context, word in contexts(text):
            counts.update([context, (*context, word), context[:2], (*context[:2], ANY, word)])
    kinds = len({word for text in corpus.targets["train"] for word in text.split()})
    for name in evaluated(corpus):
        prompts, made = corpus.texts[name], corpus.targets[name]
        exact = float(np.mean([bits(*pair) for pair in zip(prompts, map(str.split, made), strict=True)])) / (BARS * ROW)
        lawful[name] = {"loss": exact * log(2), "bits_per_event": exact, **score_tunes(prompts, made)}
        guesses = [probability(counts, kinds, *step) for text in made for step in contexts(text)]
        guess = -float(np.mean([log2(chance) for chance in guesses]))
        near[name] = {"loss": guess * log(2), "bits_per_event": guess}
    return {"the rules": lawful, "the last two words": near}


def contexts(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return each token of a tune after its place in the bar and the two tokens before it, the last one first."""
    words = ["", "", *text.split()]
    return [((str(i % ROW), words[i + 1], words[i]), words[i + 2]) for i in range(len(words) - 2)]


def probability(counts: Counter[tuple[str, ...]], kinds: int, context: tuple[str, ...], word: str) -> float:
    """Return the probability of a token after two others, smoothed by that after the last one alone."""
    wider = (counts[(*context[:2], ANY, word)] + 1.0 / kinds) / (counts[context[:2]] + 1.0)
    return (counts[(*context, word)] + 2.0 * wider) / (counts[context] + 2.0)


PROMPTED: dict[str, Any] = {"digit-drawings": drawings, "tunes": tunes}
