"""Evaluate a model row by row: answers, references, certainty, and the metrics of any rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.evaluation import no_cache


@dataclass(frozen=True)
class Evaluation:
    """The sums and answers of a model for each row of a test, and the rows as a table shows them."""

    task: Task
    sums: list[dict[str, float]]
    answers: list[list[Answer]]
    rows: list[Record]

    @cached_property
    def table(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of the sums, and those of each row."""
        names = sorted({name for own in self.sums for name in own})
        return names, np.array([[own.get(name, 0.0) for name in names] for own in self.sums])

    @property
    def is_classification(self) -> bool:
        """Return whether each row has one of several classes."""
        rows = self.rows
        return bool(self.task.labels) and all(isinstance(row.get("prediction"), str) and "score" in row for row in rows)

    def metrics(self, chosen: Sequence[int] | None = None, wanted: Sequence[str] | None = None) -> dict[str, float]:
        """Return the metrics of the task over some rows, which may be there several times, or over all of them.

        `wanted` are those of the task's named metrics that are computed, all by default.
        """
        numbers = range(len(self.rows)) if chosen is None else chosen
        names, values_of_rows = self.table
        totals = dict(zip(names, values_of_rows[list(numbers)].sum(0).tolist(), strict=True))
        values = self.task.measure(totals, [answer for number in numbers for answer in self.answers[number]], wanted)
        if self.task.in_batch_negatives:
            values.pop("loss")  # of one pair alone there is none
        return {name: value for name, value in values.items() if not name.startswith("_")}


@torch.no_grad()
def evaluate_rows(source: Source, task: Task) -> Evaluation:
    """Evaluate each row of a test, those of about one length together; texts are generated in batches, too."""
    split, model = task.splits["test"], source.model.eval()
    size = source.record.get("recipe", {}).get("batch_size", 16)
    lengths = getattr(split, "lengths", None) or [0] * len(split)
    order = sorted(range(len(split)), key=lambda number: lengths[number])
    evaluated: dict[int, tuple[dict[str, float], list[Answer], Record]] = {}
    for start in tqdm(range(0, len(split), size), unit="batch", disable=None, leave=False):
        numbers = order[start : start + size]
        records = split.__getitems__(numbers)
        generates = hasattr(task, "limit") or task.generation
        generated = (
            task.answer(model, None, send_to_device(task.collate(records, None), model.device)) if generates else []
        )
        for place, (outputs, batch) in enumerate(row_outputs(source, task, records)):
            own = [generated[place]] if generates else task.answer(model, outputs, batch)
            sums = sums_of(task, outputs, batch)
            row = {"row": numbers[place] + 1, **described(task, records[place], outputs, batch, own)}
            row |= {} if task.in_batch_negatives else {"loss": sums["loss"] / max(sums["targets"], 1)}
            evaluated[numbers[place]] = sums, own, row
    return Evaluation(task, *(list(column) for column in zip(*map(evaluated.get, range(len(split))), strict=True)))


def row_outputs(source: Source, task: Task, records: Sequence[Record]) -> Iterator[tuple[Any, Batch]]:
    """Yield the outputs for each record, `loss` a mean over its targets, with the batch of that record alone.

    They are computed together where a row gets the same there as alone.
    """
    model = source.model
    if len(records) > 1 and is_batched(source, task):
        batch = send_to_device(task.collate(records, None), model.device)
        outputs = model(**model_inputs(batch), **no_cache(model))
        losses = losses_of_rows(source, outputs, batch["labels"])
        if losses is not None:
            for row, loss in enumerate(losses):
                own = {name: column[row : row + 1] for name, column in batch.items()}
                yield SimpleNamespace(logits=outputs.logits[row : row + 1], loss=loss), own
            return
    for record in records:
        batch = send_to_device(task.collate([record], None), model.device)
        yield model(**model_inputs(batch), **no_cache(model)), batch


def is_batched(source: Source, task: Task) -> bool:
    """Tell whether rows of a batch do not see each other, and padding does not change what a row gives.

    Recordings of other lengths are other spectrograms; a classifier without a padding token cannot tell a row's end.
    """
    if task.in_batch_negatives or source.medium == "audio" or source.task == "object-detection":
        return False
    return source.task != "text-classification" or source.model.config.pad_token_id is not None


def losses_of_rows(source: Source, outputs: Any, labels: Tensor) -> Tensor | None:
    """Return the mean loss of each row's targets, 0 without any; None where the model's own loss is another one."""
    logits, rows = outputs.logits.float(), len(labels)
    if source.task == "text-generation":
        logits, labels = logits[:, :-1], labels[:, 1:]
    due = labels != IGNORED
    if logits.shape == (rows, 1):
        due, losses = torch.ones_like(logits), (logits[:, 0] - labels).square()
    elif logits.shape == labels.shape:  # of pairs of residues
        losses = binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").masked_fill(~due, 0)
    elif logits.shape[:-1] == labels.shape:
        smoothing = getattr(source.model.config, "label_smoothing", 0.0)
        losses = cross_entropy(logits.movedim(-1, 1), labels, reduction="none", label_smoothing=smoothing)
    else:
        return None
    sums, counts = losses.reshape(rows, -1).sum(1), due.reshape(rows, -1).sum(1)
    whole = sums.sum() / counts.sum()
    return sums / counts.clamp(min=1) if torch.allclose(whole, outputs.loss.float(), rtol=1e-4) else None


def sums_of(task: Task, outputs: Any, batch: Batch) -> dict[str, float]:
    """Return the part of a row in the sums of a test: its targets, their losses, and scores."""
    targets = int(torch.as_tensor(task.count(batch)).flatten()[-1])
    # A text of which nothing is masked has no targets, and a mean over none of them is no number.
    loss = float(outputs.loss) * targets if outputs.loss is not None and targets else 0.0
    return {"targets": targets, "loss": loss} | {name: float(own) for name, own in task.score(outputs, batch).items()}


def described(task: Task, record: Record, outputs: Any, batch: Any, answers: Sequence[Answer]) -> Record:
    """Return the columns of a row: its text, reference, prediction, and how certain that is."""
    row: Record = {}
    if "input_ids" in record and hasattr(task.processor, "decode"):
        row["text"] = task.processor.decode(batch["input_ids"][0], skip_special_tokens=True)
    logits = getattr(outputs, "logits", None)
    if task.labels and isinstance(logits, Tensor) and logits.dim() == 2:
        row["reference"], row["prediction"] = task.labels[int(batch["labels"][0])], task.labels[int(logits[0].argmax())]
    elif len(answers) == 1:
        row |= task.shown(answers[0])
    elif answers:
        row["reference"], row["prediction"] = [pair[1] for pair in answers], [pair[0] for pair in answers]
    if "prediction" in row and not isinstance(row["prediction"], float | dict):
        row["correct"] = row["prediction"] == row["reference"]
    if "score" not in row and (score := certainty(logits, batch)) is not None:
        row["score"] = score
    return row


def certainty(logits: Any, batch: Any) -> float | None:
    """Return the probability of the answer, of several tokens the mean; None where there are no classes."""
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3) or logits.shape[-1] == 1:
        return None
    best = logits.float().softmax(-1).amax(-1)[0]
    for name, ignored in (("labels", IGNORED), ("attention_mask", 0)) if logits.dim() == 3 else ():
        column = batch.get(name)
        if isinstance(column, Tensor) and column.shape[1:] == best.shape and (column[0] != ignored).any():
            return float(best[column[0] != ignored].mean())
    return float(best.mean())
