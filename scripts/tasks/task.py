"""Tasks: examples in splits, their batches, and scores of outputs."""

import hashlib
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from accelerate.utils import send_to_device
from matplotlib.figure import Figure
from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.corpus import DataSet
from qkv.scripts.data.examples import Batch, Examples, Record, contents, model_inputs, stack
from qkv.scripts.data.mixture import Mixture
from qkv.scripts.tasks.metrics import measure

# A prediction and its reference.
Answer = tuple[Any, Any]
Metrics = dict[str, float]
LONGEST = 300  # characters of a text on a card


@dataclass(eq=False)
class Task:
    """A data set as the training loop sees it: its examples in splits; all but `train` are evaluated.

    Args:
        kind: Name of the task, in the table of heads.
        processor: Tokenizer, image processor or both, saved with the model.
        config: Fields of the model's config that follow from the data, such as `vocab_size`.
        labels: Names of the classes.
        metrics: Metrics of all answers.
        generation: Fields of the generation config.
        usage: Program of the card that generates something, with `model=...` for the published model.
        truncated: Count of the texts that were too long.
        mixture: Rates of the tasks that its examples are of, where these are several.
        in_batch_negatives: Whether the examples of a step are each other's negatives, so it cannot be taken in parts.
        has_references: Whether each answer is a prediction beside a reference that any metric can compare.
        generates: Whether answers are generated, for which `answer` reads the batch alone.
        reduces_answers: Whether `reduce` reads the answers, beside the sums.
    """

    data: DataSet
    splits: dict[str, Any]
    processor: Any
    config: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    metrics: Sequence[str] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    usage: str = ""
    truncated: dict[str, Any] = field(default_factory=dict)
    mixture: Mixture | None = None
    kind: ClassVar[str] = ""
    in_batch_negatives: ClassVar[bool] = False
    has_references: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    reduces_answers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.train: Any = self.splits.get("train")
        self.splits = {name: split for name, split in self.splits.items() if name != "train"}
        self.every = ({} if self.train is None else {"train": self.train}) | self.splits

    def before_training(self, model: Any) -> Any:
        """Fit the task and a model to each other, and return the model."""
        return model

    def after_training(self, model: Any) -> None:
        """Finish a trained model before it is saved."""

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Make a batch, with random changes by `places` in training; the model reads no column that begins with _."""
        return stack(records)

    def count(self, batch: Batch) -> int | Tensor:
        """Return the number of targets of a batch, or of each kind; losses are means over the last kind."""
        return int((batch["labels"] != IGNORED).sum())

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        """Return sums over batches and processes, such as right predictions."""
        return {}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return predictions beside their references, for metrics of a whole split."""
        return []

    def shown(self, answer: Answer) -> Record:
        """Return the columns of an answer in a table of rows."""
        return {"reference": answer[1], "prediction": answer[0]}

    def reduce(self, sums: Metrics, answers: Sequence[Answer]) -> Metrics:
        """Return the metrics beside the named ones: each sum, `loss` among them, divided by the number of targets."""
        return {name: total / sums["targets"] for name, total in sums.items() if name != "targets"}

    def prompt(self) -> str:
        """Return a text for the programs of the card: by default the first of the test split."""
        return first(getattr(self.data, "texts", {})) or ""

    def sample(self) -> dict[str, Any]:
        """Return the short prompt of the card's programs, and the text that is read with it; empty for files."""
        texts = {"prompt": self.prompt(), "pair": first(getattr(self.data, "pairs", {})) or ""}
        return {name: shorten(text) for name, text in texts.items() if text}

    def products(self, model: Any, folder: Path) -> dict[str, str]:
        """Write pictures and sounds that the model generates to the folder of a run, and return {file: caption}."""
        return {}

    def measure(self, sums: Metrics, answers: Sequence[Answer], names: Sequence[str] | None = None) -> Metrics:
        """Compute all metrics of a split; with `names`, only these of the named metrics."""
        predictions, references = zip(*answers, strict=True) if answers else ((), ())
        return self.reduce(sums, answers) | measure(self.metrics if names is None else names, predictions, references)

    def examples(self) -> Examples:
        """Return the training examples by index; TypeError where they are a stream."""
        if isinstance(self.train, Sized):
            return cast(Examples, self.train)
        raise TypeError(f"the examples of {self.data.name} are a stream: they have no index")

    def lengths(self) -> list[int]:
        """Return the length of each training example, their attribute `lengths`; ValueError where they all have one."""
        if (lengths := getattr(self.train, "lengths", None)) is None:
            raise ValueError(f"group_by_length=true: the examples of {self.data.name} have no lengths; leave it out")
        return lengths

    def sizes(self) -> dict[str, int | None]:
        """Return the number of examples in each split, None for a stream."""
        return {name: len(own) if isinstance(own, Sized) else None for name, own in self.every.items()}


def fingerprint_of(task: Task) -> str:
    """Return the SHA-256 of every example of every split, in order; of a stream, that of its identity."""
    digest = hashlib.sha256()
    for name, split in task.every.items():
        for part in contents(split):
            digest.update(name.encode() + part)
    return digest.hexdigest()


@torch.no_grad()
def predict(task: Task, model: Any, records: Sequence[Record]) -> list[Answer]:
    """Return the answers of a task for some records."""
    batch = send_to_device(task.collate(records, None), model.device)
    return task.answer(model, model(**{**model_inputs(batch), "labels": None}), batch)


def first(splits: Mapping[str, Sequence[Any]]) -> Any | None:
    """Return the first row of the test split, else of the validation split, else None."""
    return next((splits[name][0] for name in ("test", "validation") if len(splits.get(name, ()))), None)


def shorten(text: str) -> str:
    """Return a text, or as many of its first words as a card has room for."""
    text = text.strip()
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(maxsplit=1)[0]


def grid(count: int, per_row: int, size: float) -> tuple[Figure, list[Any]]:
    """Make a figure of `count` square panels without axes, and return it with its panels."""
    rows = ceil(count / per_row)
    figure = Figure(figsize=(size * per_row, size * rows), layout="constrained")
    axes = list(figure.subplots(rows, per_row, squeeze=False).flat)
    for axis in axes:
        axis.set_axis_off()
    return figure, axes
