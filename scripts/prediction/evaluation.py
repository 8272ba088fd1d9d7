"""Evaluate a model row by row: answers, references, certainty, and the metrics of any rows."""

import pickle
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from os import SEEK_END
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from tqdm import tqdm

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.examples import Batch, Record, model_inputs
from qkv.scripts.prediction.evaluated_data import count_together
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.task import Answer, Task, fingerprint_of
from qkv.scripts.training.evaluation import no_cache

# Tasks whose rows do not see each other in a batch, nor its padding.
TOGETHER = ["text-generation", "fill-mask", "translation"]
TOGETHER += ["text-classification", "token-classification", "image-classification"]


class Rows(Sequence[Record]):
    """Rows as a table shows them, in a temporary file: those of a large table do not fit into memory."""

    def __init__(self, file: Any = None, places: Sequence[int] = ()) -> None:
        self.file = file or TemporaryFile()
        self.places = array("q", places)
        self.marks: dict[str, Sequence[Any]] = {}  # further columns

    def append(self, row: Record) -> None:
        """Write a row."""
        self.places.append(self.file.seek(0, SEEK_END))
        pickle.dump(row, self.file)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        self.file.seek(self.places[number])
        return pickle.load(self.file) | {name: column[number] for name, column in self.marks.items()}

    def chosen(self, numbers: Iterable[int]) -> "Rows":
        """Return some of the rows."""
        return Rows(self.file, [self.places[number] for number in numbers])


@dataclass(frozen=True)
class Evaluation:
    """The sums (rows, names) and answers of a model for each row of a test, and the rows as a table shows them."""

    task: Task
    names: Sequence[str]
    sums: NDArray[np.float64]
    answers: Sequence[Sequence[Answer]]
    rows: Any
    sha256: str = ""  # of all examples

    @property
    def is_classification(self) -> bool:
        """Return whether each row has one of several classes."""
        rows = self.rows
        return bool(self.task.labels) and all(isinstance(row.get("prediction"), str) and "score" in row for row in rows)

    def of_rows(self, numbers: Sequence[int]) -> "Evaluation":
        """Return the evaluation of some rows alone."""
        answers, rows = [self.answers[number] for number in numbers], self.rows.chosen(numbers)
        return replace(self, sums=self.sums[numbers], answers=answers, rows=rows)

    def metrics(self, chosen: Any = None, wanted: Sequence[str] | None = None) -> dict[str, float]:
        """Return the metrics of the task over chosen rows, with repetitions, or over all rows.

        `wanted` are those of the task's named metrics that are computed, all by default.
        """
        numbers = np.arange(len(self.answers)) if chosen is None else np.asarray(chosen)
        totals = dict(zip(self.names, self.sums[numbers].sum(0).tolist(), strict=True))
        wanted = self.task.metrics if wanted is None else wanted
        read = numbers.tolist() if wanted or self.task.reduces_answers else []
        values = self.task.measure(totals, [answer for number in read for answer in self.answers[number]], wanted)
        if self.task.in_batch_negatives:
            values.pop("loss")  # a pair alone has no negatives
        return {name: value for name, value in values.items() if not name.startswith("_")}


def evaluate_parts(source: Source, tasks: Iterable[Task]) -> Evaluation:
    """Evaluate the parts of a test as one, whose task is the first, with the facts of all."""
    whole, tables, hashes, rows = list[Task](), list[Any](), list[str](), Rows()
    answers, known = list[Sequence[Answer]](), dict[Any, Any]()
    for task in tasks:
        part = evaluate_rows(source, task)
        for own, row in zip(part.answers, part.rows, strict=True):
            rows.append(row | {"row": len(rows) + 1})
            # Few pairs of classes occur, so each is kept once.
            is_small = all(isinstance(side, int) for pair in own for side in pair)
            answers.append(known.setdefault(tuple(own), tuple(own)) if is_small else own)
        tables.append((part.names, part.sums))
        hashes.append(fingerprint_of(task))
        if whole:
            count_together(whole[0], task)
        whole = whole or [task]
    names = sorted({name for own, _ in tables for name in own})
    sums = [np.stack([table[:, own.index(name)] if name in own else np.zeros(len(table)) for name in names], 1)
            for own, table in tables]  # fmt: skip
    digest = hashes[0] if len(hashes) == 1 else sha256("\n".join(hashes).encode()).hexdigest()
    return Evaluation(whole[0], names, np.concatenate(sums), answers, rows, digest)


@torch.no_grad()
def evaluate_rows(source: Source, task: Task) -> Evaluation:
    """Evaluate each row of a test in batches of similar length; texts are generated in the order of rows."""
    split, model = task.splits["test"], source.model.eval()
    size = source.record.get("recipe", {}).get("batch_size", 16)
    lengths = None if task.generates else getattr(split, "lengths", None)
    order = sorted(range(len(split)), key=lengths.__getitem__ if lengths else None)
    evaluated: dict[int, tuple[dict[str, float], list[Answer], Record]] = {}
    for start in tqdm(range(0, len(split), size), unit="batch", disable=None, leave=False):
        numbers = order[start : start + size]
        records = split.__getitems__(numbers)
        written = task.answer(model, None, batch_of(task, model, records)) if task.generates else []
        for place, (number, (outputs, batch)) in enumerate(zip(numbers, outputs_of(task, model, records), strict=True)):
            answers = [written[place]] if task.generates else task.answer(model, outputs, batch)
            sums = sums_of(task, outputs, batch)
            row = {"row": number + 1, **described(task, outputs, batch, answers)}
            row |= {} if task.in_batch_negatives else {"loss": sums["loss"] / max(sums["targets"], 1)}
            evaluated[number] = sums, answers, row
    each, answers, rows = (list(column) for column in zip(*map(evaluated.get, range(len(split))), strict=True))
    names = sorted({name for own in each for name in own})
    return Evaluation(task, names, np.array([[own.get(name, 0.0) for name in names] for own in each]), answers, rows)


def batch_of(task: Task, model: Any, records: Sequence[Record]) -> Batch:
    """Return the batch of some records on the device of a model."""
    return send_to_device(task.collate(records, None), model.device)


def outputs_of(task: Task, model: Any, records: Sequence[Record]) -> Iterator[tuple[Any, Batch]]:
    """Yield the outputs for each record, whose loss is a mean over its targets, and the batch of that record alone.

    They come from one forward pass where a row gets the same in a batch as alone: recordings of other lengths are other
    spectrograms, and a classifier without a padding token cannot tell a row's end.
    """
    is_classifier = task.kind == "text-classification"
    if task.kind in TOGETHER and (not is_classifier or model.config.pad_token_id is not None):
        batch = batch_of(task, model, records)
        outputs = model(**model_inputs(batch), **no_cache(model))
        losses = losses_of_rows(task, model, outputs, batch["labels"])
        if losses is not None:
            for row, loss in enumerate(losses):
                own = {key: each[row : row + 1] for key, each in batch.items()}
                yield SimpleNamespace(logits=outputs.logits[row : row + 1], loss=loss), own
            return
    for record in records:
        batch = batch_of(task, model, [record])
        yield model(**model_inputs(batch), **no_cache(model)), batch


def losses_of_rows(task: Task, model: Any, outputs: Any, labels: Tensor) -> Tensor | None:
    """Return the mean loss of each row's targets, 0 without any; None where the model's own loss is another one."""
    logits = outputs.logits.float()
    if task.kind == "text-generation":
        logits, labels = logits[:, :-1], labels[:, 1:]
    due = labels != IGNORED
    if logits.shape == (len(labels), 1):
        due, losses = torch.ones_like(due), (logits[:, 0] - labels).square()
    elif logits.shape == labels.shape and labels.is_floating_point():
        losses = binary_cross_entropy_with_logits(logits, labels, reduction="none")
    elif logits.shape[:-1] == labels.shape:
        smoothing = getattr(model.config, "label_smoothing", 0.0)
        losses = cross_entropy(logits.movedim(-1, 1), labels, reduction="none", label_smoothing=smoothing)
    else:
        return None
    sums, counts = losses.reshape(len(labels), -1).sum(1), due.reshape(len(labels), -1).sum(1)
    is_own = torch.allclose(sums.sum() / counts.sum(), outputs.loss.float(), rtol=1e-4)
    return sums / counts.clamp(min=1) if is_own else None


def sums_of(task: Task, outputs: Any, batch: Any) -> dict[str, float]:
    """Return the part of a row in the sums of a test: its targets, their losses, and scores."""
    targets = int(torch.as_tensor(task.count(batch)).flatten()[-1])
    # A text without a masked token has no targets, and its mean loss is NaN.
    loss = float(outputs.loss) * targets if outputs.loss is not None and targets else 0.0
    return {"targets": targets, "loss": loss} | {name: float(own) for name, own in task.score(outputs, batch).items()}


def described(task: Task, outputs: Any, batch: Any, answers: Sequence[Answer]) -> Record:
    """Return the columns of a row: its text, reference, prediction, and how certain that is."""
    row: Record = {}
    if "input_ids" in batch and hasattr(task.processor, "decode") and not task.in_batch_negatives:
        row["text"] = task.processor.decode(batch["input_ids"][0], skip_special_tokens=True)
    logits = getattr(outputs, "logits", None)
    if task.labels and isinstance(logits, Tensor) and logits.dim() == 2 and batch["labels"].dim() == 1:
        row["reference"], row["prediction"] = task.labels[int(batch["labels"][0])], task.labels[int(logits[0].argmax())]
    elif len(answers) == 1:
        row |= task.shown(answers[0])
    elif answers:
        row["reference"], row["prediction"] = [pair[1] for pair in answers], [pair[0] for pair in answers]
    if "prediction" in row and "correct" not in row and not isinstance(row["prediction"], float | dict):
        row["correct"] = row["prediction"] == row["reference"]
    if "score" not in row and (score := certainty(logits, batch)) is not None:
        row["score"] = score
    return row


def certainty(logits: Any, batch: Any) -> float | None:
    """Return the probability of the answer, of several tokens the mean; None where there are no classes."""
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3) or logits.shape[-1] == 1:
        return None
    if isinstance(batch.get("labels"), Tensor) and batch["labels"].shape == logits.shape:  # a yes or no for each class
        return float(logits.float().abs().sigmoid().mean())
    best = logits.float().softmax(-1).amax(-1)[0]
    for name, ignored in (("labels", IGNORED), ("attention_mask", 0)) if logits.dim() == 3 else ():
        column = batch.get(name)
        if isinstance(column, Tensor) and column.shape[1:] == best.shape and (column[0] != ignored).any():
            return float(best[column[0] != ignored].mean())
    return float(best.mean())
