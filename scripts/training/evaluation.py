"""How good is a model on a split? Sums and answers of all processes, made into metrics once."""

from collections import defaultdict
from inspect import signature
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, send_to_device
from torch import Tensor, nn

from qkv.scripts.tasks.task import Answer, Batch, Examples, Task
from qkv.scripts.training.accelerator import data_parallel, put_away, tensor_parallel


def place(batch: Batch, accelerator: Accelerator) -> Batch:
    """The batch on this process's device."""
    found: Batch = send_to_device(batch, accelerator.device)
    return found


def inputs(batch: Batch) -> Batch:
    """What of a batch is given to the model."""
    return {name: value for name, value in batch.items() if not name.startswith("_")}


def uncached(accelerator: Accelerator, model: nn.Module) -> dict[str, bool]:
    """What keeps a model that could write from keeping the keys and values of a text, which is read once."""
    plain = accelerator.unwrap_model(model, keep_torch_compile=False)
    return {"use_cache": False} if "use_cache" in signature(type(plain).forward).parameters else {}


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: nn.Module, task: Task, split: Examples, size: int) -> dict[str, float]:
    """Metrics over a split, of which every process takes every n-th batch."""
    rank, processes = data_parallel(accelerator)
    starts = range(0, len(split), size)
    sums: dict[str, float] = defaultdict(float)
    answers: list[Answer] = []
    was_training, options = model.training, uncached(accelerator, model)
    model.eval()
    for first in starts[::processes]:
        # Processes whose model is in pieces need each other at every step: who has no batch left computes one in vain.
        start = first + rank * size
        batch = collated(task, split, start if start < len(split) else 0, size, accelerator)
        count = task.count(batch)
        # The sum, unless there is no one number to divide it by.
        outputs = model(**inputs(batch), **options, num_items_in_batch=count if isinstance(count, Tensor) else 1)
        found = task.answer(accelerator.unwrap_model(model), outputs, batch)
        if start < len(split):
            sums["targets"] += int(torch.as_tensor(count).flatten()[-1])
            for name, value in {"loss": outputs.loss, **task.score(outputs, batch)}.items():
                sums[name] += float(value)
            answers += found
    put_away(model)
    model.train(was_training)
    return combined(task, accelerator, dict(sums), answers)


def collated(task: Task, split: Examples, start: int, size: int, accelerator: Accelerator) -> Batch:
    """The batch of a split that begins there."""
    records = split.__getitems__(range(start, min(start + size, len(split))))
    return place(task.collate(records, None), accelerator)


def combined(task: Task, accelerator: Accelerator, sums: dict[str, float], answers: list[Answer]) -> dict[str, float]:
    """The metrics that the sums and answers of all processes give, one of each tensor-parallel group."""
    parts: list[Any] = gather_object([(sums, answers)])[:: tensor_parallel(accelerator)]
    names = sorted({name for part, _ in parts for name in part})
    totals = {name: sum(part.get(name, 0.0) for part, _ in parts) for name in names}
    return task.measure(totals, [answer for _, found in parts for answer in found])
