"""Evaluate a model on a split, from the sums and answers of all processes."""

from collections import defaultdict
from inspect import signature
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, send_to_device
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from qkv.scripts.data.examples import Batch, Examples, model_inputs
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.accelerator import data_parallel, tensor_parallel_size


def no_cache(model: nn.Module) -> dict[str, bool]:
    """Return the keyword that keeps a model from caching keys and values; empty for a model without a cache."""
    return {"use_cache": False} if "use_cache" in signature(type(model).forward).parameters else {}


@torch.no_grad()
def evaluate(
    accelerator: Accelerator, model: nn.Module, task: Task, split: Examples, size: int, every: list[Answer]
) -> dict[str, float]:
    """Compute the metrics of a split in batches of `size`, every n-th on each of n processes; add to `every` answer."""
    rank, processes = data_parallel(accelerator)
    sums: dict[str, float] = defaultdict(float)
    answers: list[Answer] = []
    was_training, options = model.training, no_cache(accelerator.unwrap_model(model, keep_torch_compile=False))
    model.eval()
    for first in range(0, len(split), size)[::processes]:
        # Idle ranks run a dummy batch, so that the collectives of sharded models match.
        start = first + rank * size
        idle = start >= len(split)
        records = split.__getitems__(range(0 if idle else start, min(size if idle else start + size, len(split))))
        batch: Batch = send_to_device(task.collate(records, None), accelerator.device)
        count = task.count(batch)
        # The sum of the losses, unless several numbers divide it.
        outputs = model(**model_inputs(batch), **options, num_items_in_batch=count if isinstance(count, Tensor) else 1)
        answered = task.answer(accelerator.unwrap_model(model), outputs, batch)
        if not idle:
            sums["targets"] += int(torch.as_tensor(count).flatten()[-1])
            for name, value in {"loss": outputs.loss, **task.score(outputs, batch)}.items():
                sums[name] += float(value)
            answers += answered
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # it keeps gathered weights for a backward pass
    model.train(was_training)
    # One process of each tensor-parallel group.
    parts: list[Any] = gather_object([(dict(sums), answers)])[:: tensor_parallel_size(accelerator)]
    names = sorted({name for part, _ in parts for name in part})
    totals = {name: sum(part.get(name, 0.0) for part, _ in parts) for name in names}
    every += [answer for _, answered in parts for answer in answered]
    return task.measure(totals, every)
