"""What is read? Texts in splits: alone, each with a label, or each with what is to be written from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerFast

from qkv.scripts.data.tokenization import fields
from qkv.scripts.tasks.task import Task

Item = TypeVar("Item")
Splits = dict[str, list[Item]]


@dataclass(frozen=True)
class Corpus:
    """Texts in splits, `train` and `test` among them, the same ones every time.

    A text is one document. `labels` has the number of its class in `names`, `targets` what is to be written from it.
    """

    name: str
    title: str
    source: str
    texts: Splits[str]
    labels: Splits[int] = field(default_factory=dict)
    names: Sequence[str] = ()
    targets: Splits[str] = field(default_factory=dict)

    def limited(self, evaluated: int) -> "Corpus":
        """The same with only the first examples of evaluated splits, or with all of them when that is 0."""
        if not evaluated:
            return self
        texts, labels = first(self.texts, evaluated), first(self.labels, evaluated)
        return replace(self, texts=texts, labels=labels, targets=first(self.targets, evaluated))

    def held_back(self, share: float) -> "Corpus":
        """The same with that share of the training examples, evenly spread, as `validation` where there is none.

        ValueError where that is no example at all.
        """
        if not share or "validation" in self.texts:
            return self
        held = spread(len(self.texts["train"]), share)
        texts, labels, targets = (dealt(splits, held) for splits in (self.texts, self.labels, self.targets))
        return replace(self, texts=texts, labels=labels, targets=targets)


def spread(size: int, share: float) -> list[bool]:
    """Which of that many examples are held back: so large a share of them, evenly spread; ValueError for none."""
    held = [int((index + 1) * share) > int(index * share) for index in range(size)]
    if not any(held):
        raise ValueError(f"holdout={share} of {size} examples is none; make it larger, or give more of them")
    return held


def dealt(splits: Splits[Item], held: Sequence[bool]) -> Splits[Item]:
    """The splits with those training examples as `validation`; none where there are none."""
    if not splits:
        return splits
    parts: dict[bool, list[Item]] = {True: [], False: []}
    for item, is_held in zip(splits["train"], held, strict=True):
        parts[is_held].append(item)
    return {**splits, "train": parts[False], "validation": parts[True]}


def first(splits: Splits[Item], count: int) -> Splits[Item]:
    """That many examples of every split but the training's, which stays whole."""
    return {name: items if name == "train" else items[:count] for name, items in splits.items()}


def pairs(name: str, title: str, source: str, found: Sequence[tuple[str, str]]) -> Corpus:
    """A corpus of texts and what is to be written from them, every tenth pair for the test."""
    test = list(found[::10])
    train = [pair for index, pair in enumerate(found) if index % 10]
    splits = {"train": train, "test": test}
    return Corpus(
        name,
        title,
        source,
        texts={split: [text for text, _ in part] for split, part in splits.items()},
        targets={split: [target for _, target in part] for split, part in splits.items()},
    )


def task_of(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, kind: str, positions: int, **others: Any) -> Task:
    """A task on a corpus, whose model has so many positions; `config` are further fields of the model's config."""
    config = {**fields(tokenizer), "max_position_embeddings": positions, **others.pop("config", {})}
    return Task(
        name=corpus.name,
        title=corpus.title,
        source=corpus.source,
        kind=kind,
        processor=tokenizer,
        config=config,
        **{"labels": [], **others},
    )
