"""Compute the outputs for each row: in batches where a row gets the same there, else row by row."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.examples import Batch, Record, model_inputs
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.evaluation import no_cache


def row_outputs(source: Source, task: Task, records: Sequence[Record]) -> Iterator[tuple[Any, Batch]]:
    """Yield the outputs for each record, `loss` a mean over its targets, with the batch of that record alone."""
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
    if logits.shape == (rows, 1):
        due, losses = torch.ones_like(logits), (logits[:, 0] - labels).square()
    elif logits.shape == labels.shape:  # of pairs of residues
        due = labels != IGNORED
        losses = binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").masked_fill(~due, 0)
    elif logits.shape[:-1] == labels.shape:
        smoothing = getattr(source.model.config, "label_smoothing", 0.0)
        due = labels != IGNORED
        losses = cross_entropy(logits.movedim(-1, 1), labels, reduction="none", label_smoothing=smoothing)
    else:
        return None
    sums, counts = losses.reshape(rows, -1).sum(1), due.reshape(rows, -1).sum(1)
    whole = sums.sum() / counts.sum()
    return sums / counts.clamp(min=1) if torch.allclose(whole, outputs.loss.float(), rtol=1e-4) else None
