"""Data sets by name: corpora of texts, alone, each with a label, or each with a target text; recordings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from qkv.scripts.data.examples import Record
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.validation import RecordValidation

Item = TypeVar("Item")
Splits = dict[str, list[Item]]
# Metrics by split, for each method.
Baselines = dict[str, dict[str, dict[str, float]]]
# Makes examples of texts, a list for each.
Prepare = Callable[[Sequence[str]], list[list[Record]]]
# Generates a text for each prompt.
Generate = Callable[[Sequence[str]], list[str]]
TEST_EVERY = 10  # every so-many-th record of data without a test split is for the test


@dataclass(frozen=True)
class DataSet:
    """A data set under the names that records and cards have for it, and its records that were skipped."""

    name: str
    title: str
    source: str
    invalid_records: RecordValidation = field(default_factory=RecordValidation, kw_only=True, compare=False)


@dataclass(frozen=True)
class SpeechData(DataSet):
    """Recordings and their transcriptions at `where`, a file, folder or data set of the Hub."""

    where: str


@dataclass(frozen=True)
class Corpus(DataSet):
    """Texts in splits, `train` and `test` among them, the same ones every time.

    A text is one document. `labels` has the number of its class in `names`, `targets` the text to be written from it.
    With a `stream` (prepare, length) there are texts for validation at most, and it makes the examples of all others.
    """

    texts: Splits[str]
    labels: Splits[int] = field(default_factory=dict)
    names: Sequence[str] = ()
    targets: Splits[str] = field(default_factory=dict)
    stream: Callable[[Prepare, int | None], Stream] | None = None

    @property
    def evaluated(self) -> list[str]:
        """Return the splits that are not for training."""
        return [name for name in self.texts if name != "train"]

    def limited(self, evaluated: int) -> "Corpus":
        """Return it with only the first examples of evaluated splits, or with all of them when that is 0."""
        if not evaluated:
            return self
        texts, labels = first(self.texts, evaluated), first(self.labels, evaluated)
        return replace(self, texts=texts, labels=labels, targets=first(self.targets, evaluated))

    def with_holdout(self, share: float) -> "Corpus":
        """Return it with that share of the training examples, evenly spread, as `validation` where there is none.

        ValueError where that is no example at all.
        """
        if not share or "validation" in self.texts:
            return self
        held = evenly_spread(len(self.texts["train"]), share)
        texts, labels, targets = (hold_out(splits, held) for splits in (self.texts, self.labels, self.targets))
        return replace(self, texts=texts, labels=labels, targets=targets)


@dataclass(frozen=True)
class PromptedCorpus:
    """A corpus whose targets are grids of tokens, such as images and tunes, that a decoder generates after a prompt.

    A target has rows of `columns` tokens, each a `unit` for metrics in bits. `score` (prompts, generated texts) gives
    metrics of what was generated, and `baselines` those of simpler methods. `products` (generate, folder) leaves
    pictures or sound in a run's folder and returns {file: caption}; `usage` is a program for the card that generates
    some, with `model=...` for the published model.
    """

    corpus: Corpus
    unit: str
    columns: int
    score: Callable[[Sequence[str], Sequence[str]], dict[str, float]]
    products: Callable[[Generate, Path], dict[str, str]]
    baselines: Callable[[Corpus], Baselines]
    usage: str


def evenly_spread(size: int, share: float) -> list[bool]:
    """Choose which of that many examples are held out, evenly spread; ValueError for none."""
    held = [int((index + 1) * share) > int(index * share) for index in range(size)]
    if not any(held):
        raise ValueError(f"holdout={share} of {size} examples is none; make it larger, or give more of them")
    return held


def hold_out(splits: Splits[Item], held: Sequence[bool]) -> Splits[Item]:
    """Move the held training examples to `validation`."""
    if not splits:
        return splits
    parts: dict[bool, list[Item]] = {True: [], False: []}
    for item, is_held in zip(splits["train"], held, strict=True):
        parts[is_held].append(item)
    return {**splits, "train": parts[False], "validation": parts[True]}


def first(splits: Splits[Item], count: int) -> Splits[Item]:
    """Keep that many examples of every split but the training's, which stays whole."""
    return {name: items if name == "train" else items[:count] for name, items in splits.items()}


def paired(name: str, title: str, source: str, pairs: Sequence[tuple[str, str]]) -> Corpus:
    """Make a corpus of texts and their targets, every tenth pair for the test."""
    train = [pair for index, pair in enumerate(pairs) if index % TEST_EVERY]
    splits = {"train": train, "test": list(pairs[::TEST_EVERY])}
    texts = {split: [text for text, _ in part] for split, part in splits.items()}
    return Corpus(name, title, source, texts, targets={s: [target for _, target in p] for s, p in splits.items()})
