"""What does a training ask of its data? A task: examples in splits, how they become batches, how answers are scored."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from qkv.scripts.data.fingerprint import contents
from qkv.scripts.data.readers import Record as Record
from qkv.scripts.data.validation import Complaints

if TYPE_CHECKING:
    from qkv.scripts.data.stream import Stream

Batch = dict[str, Tensor]
# What was predicted, and what would have been right.
Answer = tuple[Any, Any]


class Examples(Protocol):
    """Records by index, as `datasets.Dataset` and `Columns` have them."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        """The records of these indices, in this order."""


class Columns:
    """Examples that fit in memory: tensors of equal length, such as images and their labels.

    Rows that were padded to one length may say in `lengths` how long they are.
    """

    def __init__(self, columns: Batch, lengths: Sequence[int] | None = None) -> None:
        self.columns = columns
        self.lengths = lengths

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        return [{name: column[index] for name, column in self.columns.items()} for index in indices]

    def contents(self) -> Iterator[bytes]:
        """Every value, and how it is stored."""
        for column, values in self.columns.items():
            yield f"{column} {values.dtype} {tuple(values.shape)}".encode()
            yield values.numpy().tobytes()


def stack(records: Sequence[Record], places: Sequence[int] | None = None) -> Batch:
    """A batch of records whose values have one shape."""
    return {name: torch.stack([torch.as_tensor(record[name]) for record in records]) for name in records[0]}


def mean(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """Each sum divided by the number of targets."""
    return {name: total / sums["targets"] for name, total in sums.items() if name != "targets"}


@dataclass(frozen=True)
class Example:
    """What a pipeline is given, with what options, and what its first answer must then hold."""

    given: Any
    expected: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A data set as the loop sees it.

    `kind` is the pipeline's name for the task, `labels` are the class names. `splits` are evaluated.

    `collate` makes a batch of records. In training it is told the `places` of its records in the endless order that
    all processes share: what it changes at random it draws from `(seed, place)` and nothing else, so the same batches
    come on any number of processes and after any interruption. In evaluation `places` is None, and nothing is changed.
    Names in a batch that begin with an underscore are for scoring and not given to the model.

    `count` says how many targets a batch has, or, as a tensor, how many of each kind where a model divides by several;
    the last of these are what losses are means over. `score` sums up what adds over batches and processes, such as
    right answers; `answer` (model, outputs, batch) gives what has to be seen together, such as translations beside
    their references. From the sums (`loss` and `targets` among them) and all answers of a split `measure` makes its
    metrics.

    `config` are the fields of the model's config that follow from the data, such as `vocab_size`; `signatures` say how
    metrics were computed where that has a name. `baselines` measures what the model is compared with, and `example`
    (model) gives what shows the pipeline of this kind at work.

    `complaints` are the bad records that were skipped. `contested` says that the examples of a step compete: what is
    lost on each depends on the others, so a step cannot be taken in parts.

    `generation` is what the model's generation config says when it is saved. `products` (model, folder) leaves what the
    model makes in a run's folder, and returns {file: caption}; `usage` is the program of the card that makes some, in
    which `model=...` stands for the published model.
    """

    name: str
    title: str
    kind: str
    source: str
    train: "Examples | Stream"
    splits: Mapping[str, Examples]
    labels: list[str]
    processor: Any
    count: Callable[[Batch], int | Tensor]
    score: Callable[[Any, Batch], dict[str, Tensor]] = lambda outputs, batch: {}
    answer: Callable[[Any, Any, Batch], list[Answer]] = lambda model, outputs, batch: []
    measure: Callable[[dict[str, float], Sequence[Answer]], dict[str, float]] = mean
    complaints: Complaints = field(default_factory=Complaints)
    collate: Callable[[Sequence[Record], Sequence[int] | None], Batch] = stack
    config: dict[str, Any] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    baselines: Callable[[], dict[str, dict[str, dict[str, float]]]] = dict
    example: Callable[[Any], "Example | None"] = lambda model: None
    contested: bool = False
    generation: Mapping[str, Any] = field(default_factory=dict)
    products: Callable[[Any, Path], dict[str, str]] = lambda model, folder: {}
    usage: str = ""

    def examples(self) -> Examples:
        """The training examples by index; TypeError where they are a stream."""
        if not isinstance(self.train, Sized):
            raise TypeError(f"the examples of {self.name} are a stream: they have no index")
        return self.train

    def lengths(self) -> list[int]:
        """How long each training example is, for batches of like length; ValueError where they all have one length.

        Lengths are the attribute `lengths`, or of a table the column `length`.
        """
        train: Any = self.train
        named = "length" in getattr(train, "column_names", ())
        column = train["length"] if named else getattr(train, "lengths", None)
        if column is None:
            raise ValueError(f"group_by_length=true: the examples of {self.name} have no lengths; leave it out")
        return list(column)

    def fingerprint(self) -> str:
        """SHA-256 over every example of every split, in order; of a stream, over what says which it is."""
        digest = hashlib.sha256()
        for name, split in {"train": self.train, **self.splits}.items():
            for part in contents(split):
                digest.update(name.encode() + part)
        return digest.hexdigest()

    def sizes(self) -> dict[str, int | None]:
        """Examples in each split, as far as it has an end."""
        splits = {"train": self.train, **self.splits}
        return {name: len(split) if isinstance(split, Sized) else None for name, split in splits.items()}
