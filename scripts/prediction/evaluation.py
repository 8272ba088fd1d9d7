"""Evaluate a model row by row: what it answers, what is right, how certain it is, and the metrics of any rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.prediction.row_outputs import row_outputs
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.progress import progress_display

NATS = "loss"


@dataclass(frozen=True)
class Evaluation:
    """The sums and answers of a model for each row of a test, and the rows as a table shows them."""

    task: Task
    sums: list[dict[str, float]]
    answers: list[list[Answer]]
    rows: list[Record]
    labels: list[str]

    @cached_property
    def table(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of the sums, and those of each row."""
        names = sorted({name for own in self.sums for name in own})
        return names, np.array([[own.get(name, 0.0) for name in names] for own in self.sums])

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
    """Evaluate each row of a test, those of about one length together; what is generated is so in batches, too."""
    split, model = task.splits["test"], source.model.eval()
    size = source.record.get("recipe", {}).get("batch_size", 16)
    lengths = getattr(split, "lengths", None) or [0] * len(split)
    order = sorted(range(len(split)), key=lambda number: lengths[number])
    evaluated: dict[int, tuple[dict[str, float], list[Answer], Record]] = {}
    with progress_display("rows", len(split), is_main=True, unit="row") as progress:
        for start in range(0, len(split), size):
            numbers = order[start : start + size]
            records = split.__getitems__(numbers)
            together = generated(task, model, records)
            for place, (outputs, batch) in enumerate(row_outputs(source, task, records)):
                own = task.answer(model, outputs, batch) if together is None else [together[place]]
                sums = sums_of(task, outputs, batch)
                row = {"row": numbers[place] + 1, **described(task, records[place], outputs, batch, own)}
                if not task.in_batch_negatives:
                    row["loss"] = sums[NATS] / max(sums["targets"], 1)
                evaluated[numbers[place]] = sums, own, row
            progress.update(start + len(records), "")
    sums_of_rows, answers, rows = (list(column) for column in zip(*map(evaluated.get, range(len(split))), strict=True))
    return Evaluation(task, sums_of_rows, answers, rows, list(task.labels))


def sums_of(task: Task, outputs: Any, batch: Batch) -> dict[str, float]:
    """Return what a row adds to the sums of a test: its targets, their losses, and scores."""
    targets = int(torch.as_tensor(task.count(batch)).flatten()[-1])
    # A text of which nothing is masked has no targets, and a mean over none of them is no number.
    loss = float(outputs.loss) * targets if outputs.loss is not None and targets else 0.0
    return {"targets": targets, NATS: loss} | {name: float(own) for name, own in task.score(outputs, batch).items()}


def generated(task: Task, model: Any, records: Sequence[Record]) -> list[Answer] | None:
    """Return what is generated for a batch of rows; None where nothing is."""
    if not hasattr(task, "limit") and not task.generation:
        return None
    batch = send_to_device(task.collate(records, None), model.device)
    return task.answer(model, None, batch)


def described(task: Task, record: Record, outputs: Any, batch: Any, answers: Sequence[Answer]) -> Record:
    """Return the columns of a row: what was read, what is right, what was answered, and how certain that is."""
    row: Record = {}
    if "input_ids" in record and hasattr(task.processor, "decode"):
        row["text"] = task.processor.decode(batch["input_ids"][0], skip_special_tokens=True)
    logits = getattr(outputs, "logits", None)
    if task.labels and isinstance(logits, Tensor) and logits.dim() == 2:
        own = logits[0].float().softmax(-1)
        row["reference"], row["prediction"] = task.labels[int(batch["labels"][0])], task.labels[int(own.argmax())]
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


def calibration_error(scores: Sequence[float], correct: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error: how far certainty is from the share of right rows, over bins of certainty.

    Source: Guo et al. 2017, On Calibration of Modern Neural Networks, §2, https://arxiv.org/abs/1706.04599
    """
    return sum(count * abs(sure - right) for sure, right, count in reliability(scores, correct, bins)) / len(scores)


def reliability(scores: Sequence[float], correct: Sequence[bool], bins: int = 10) -> list[tuple[float, float, int]]:
    """Return mean certainty, share of right rows and number of rows of each bin of certainty that has some."""
    values, right = np.asarray(scores), np.asarray(correct, dtype=float)
    places = np.minimum((values * bins).astype(int), bins - 1)
    own = [places == number for number in range(bins)]
    return [(float(values[each].mean()), float(right[each].mean()), int(each.sum())) for each in own if each.any()]
