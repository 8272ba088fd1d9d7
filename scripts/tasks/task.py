"""The task of a training: examples in splits, how they become batches, and how outputs are scored."""

import hashlib
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.corpus import Baselines, DataSet
from qkv.scripts.data.examples import Batch, Examples, Record, stack
from qkv.scripts.data.fingerprint import contents
from qkv.scripts.data.stream import Stream
from qkv.scripts.tasks.metrics import measure

# A prediction and its reference.
Answer = tuple[Any, Any]


def count_labels(batch: Batch) -> int:
    """Count the labels of a batch."""
    return int((batch["labels"] != IGNORED).sum())


def mean(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Divide each sum by the number of targets."""
    return {name: total / sums["targets"] for name, total in sums.items() if name != "targets"}


@dataclass(frozen=True)
class Example:
    """The input of a pipeline, its options, and what its first answer must then hold."""

    given: Any
    expected: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A data set as the training loop sees it.

    `kind` is the pipeline's name for the task, `labels` are the class names. `splits` are evaluated.

    `collate` makes a batch of records. In training it is given the `places` of its records in the endless order that
    all processes share, and draws random changes from `(seed, place)` alone, so the same batches come on any number of
    processes and after any interruption. In evaluation `places` is None, and nothing is changed. Names in a batch that
    begin with an underscore are for scoring and not given to the model.

    `count` returns how many targets a batch has, or, as a tensor, how many of each kind where a model divides by
    several; the last of these are what losses are means over. `score` gives sums over batches and processes, such as
    right predictions; `answer` (model, outputs, batch) what has to be scored together, such as translations beside
    their references. From the sums (`loss` and `targets` among them) and all answers of a split `reduce` makes
    metrics, beside the `metrics` that are named.

    `config` are the fields of the model's config that follow from the data, such as `vocab_size`. `baselines` measures
    what the model is compared with, and `example` (model) gives an input and output of the pipeline of this kind.

    With `in_batch_negatives` the examples of a step are each other's negatives: the loss of each depends on the others,
    so gradients cannot be accumulated over parts of it.

    `generation` are fields of the model's generation config. `products` (model, folder) leaves what the model
    generates in a run's folder, and returns {file: caption}; `usage` is the program of the card that generates some,
    in which `model=...` stands for the published model.
    """

    data: DataSet
    kind: str
    train: Examples | Stream
    splits: Mapping[str, Examples]
    processor: Any
    labels: list[str] = field(default_factory=list)
    count: Callable[[Batch], int | Tensor] = count_labels
    score: Callable[[Any, Batch], dict[str, Tensor]] = lambda outputs, batch: {}
    answer: Callable[[Any, Any, Batch], list[Answer]] = lambda model, outputs, batch: []
    reduce: Callable[[dict[str, float], Sequence[Answer]], dict[str, float]] = mean
    metrics: Sequence[str] = ()
    collate: Callable[[Sequence[Record], Sequence[int] | None], Batch] = stack
    config: dict[str, Any] = field(default_factory=dict)
    baselines: Callable[[], Baselines] = dict
    example: Callable[[Any], Example | None] = lambda model: None
    in_batch_negatives: bool = False
    generation: Mapping[str, Any] = field(default_factory=dict)
    products: Callable[[Any, Path], dict[str, str]] = lambda model, folder: {}
    usage: str = ""

    def measure(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Compute all metrics of a split."""
        predictions, references = zip(*answers, strict=True) if answers else ((), ())
        return self.reduce(sums, answers) | measure(self.metrics, predictions, references)

    def examples(self) -> Examples:
        """Return the training examples by index; TypeError where they are a stream."""
        if not isinstance(self.train, Sized):
            raise TypeError(f"the examples of {self.data.name} are a stream: they have no index")
        return self.train

    def lengths(self) -> list[int]:
        """Return the length of each training example; ValueError where they all have one.

        Lengths are the attribute `lengths`, or of a table the column `length`.
        """
        train: Any = self.train
        named = "length" in getattr(train, "column_names", ())
        column = train["length"] if named else getattr(train, "lengths", None)
        if column is None:
            raise ValueError(f"group_by_length=true: the examples of {self.data.name} have no lengths; leave it out")
        return list(column)

    def fingerprint(self) -> str:
        """Return the SHA-256 of every example of every split, in order; of a stream, that of its identity."""
        digest = hashlib.sha256()
        for name, split in {"train": self.train, **self.splits}.items():
            for part in contents(split):
                digest.update(name.encode() + part)
        return digest.hexdigest()

    def sizes(self) -> dict[str, int | None]:
        """Return the number of examples in each split, None for a stream."""
        splits = {"train": self.train, **self.splits}
        return {name: len(split) if isinstance(split, Sized) else None for name, split in splits.items()}
