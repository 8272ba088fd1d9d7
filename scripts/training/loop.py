"""Train by Accelerate, with a result that depends neither on the number of processes nor on micro-batches.

A model's loss is a sum over targets, divided by `num_items_in_batch`: the targets of the whole optimizer step, which
are counted first, so that micro-batches add up exactly.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from qkv.configuration.configuration_stack import StackConfig
from qkv.modeling.fast_paths.varlen import kernel_of
from qkv.modeling.heads.routing import balance_experts
from qkv.scripts.data.collate import in_one_row
from qkv.scripts.data.examples import Batch, Examples, model_inputs
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.accelerator import data_parallel, prepare, reduce_sum
from qkv.scripts.training.evaluation import evaluate, no_cache
from qkv.scripts.training.sampler import Share
from qkv.scripts.training.schedule import make_schedule
from qkv.scripts.training.stream_loader import make_loader


@dataclass
class Step:
    """An optimizer step: loss over all its targets, gradient norm before clipping, tokens of text of all processes.

    `stop` and `save` are equal on all processes: one was asked to end the training, the main one asks for a checkpoint.
    """

    number: int
    learning_rate: float
    loss: Tensor
    grad_norm: Tensor
    tokens: Tensor
    stop: bool = False
    save: bool = False


@dataclass
class Loop:
    """Model, optimizer, schedule and data of a training after `done` steps."""

    accelerator: Accelerator
    model: Any
    recipe: Recipe
    task: Task
    done: int = 0
    # Whether this process was asked to end the training, or asks for a checkpoint; reduced in each step.
    stop_requested: Callable[[], bool] = lambda: False
    save_requested: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        accelerator, model, recipe, task = self.accelerator, self.model, self.recipe, self.task
        self.balances = getattr(model.config, "score_correction_bias", False)
        check_task(task, recipe)
        self.loader = make_loader(task, recipe, Share.of(accelerator, recipe))
        if recipe.compute.gradient_checkpointing:
            model.activation_checkpointing_enable()
        optimizer = torch.optim.AdamW(
            parameter_groups(model, recipe.optimization.weight_decay), lr=recipe.optimization.learning_rate, fused=True
        )
        self.model, self.optimizer = prepare(accelerator, model, optimizer)
        # Not prepared: Accelerate would advance it once for each process.
        self.schedule = make_schedule(self.optimizer, recipe.schedule, recipe.optimization.max_steps)

    def steps(self) -> Iterator[Step]:
        """Take the remaining steps, and yield after each."""
        batches = self.loader.micro_batches(self.done)
        self.model.train()
        while self.done < self.recipe.optimization.max_steps:
            parts = islice(batches, self.recipe.optimization.accumulate)
            taken = self.step([self.on_device(batch) for batch in parts])
            self.done = taken.number
            yield taken

    def on_device(self, batch: Batch) -> Batch:
        """Copy a batch to the device, on a GPU while it computes; packed rows become one where it reads them so."""
        device = self.accelerator.device
        if batch.keys() == {"input_ids", "position_ids", "labels"} and self.reads_one_row():
            batch = in_one_row(batch)
        if device.type != "cuda":
            return send_to_device(batch, device)
        pinned = {name: each.pin_memory() if isinstance(each, Tensor) else each for name, each in batch.items()}
        return send_to_device(pinned, device, non_blocking=True)

    def reads_one_row(self) -> bool:
        """Return True for a stack whose documents a kernel of the device attends to one by one."""
        config = self.accelerator.unwrap_model(self.model, keep_torch_compile=False).config
        dtype = torch.bfloat16 if self.accelerator.mixed_precision == "bf16" else torch.float32
        alone = isinstance(config, StackConfig) and self.recipe.compute.tensor_parallel == 1
        return alone and kernel_of(config, self.accelerator.device, dtype, training=True) is not None

    def step(self, batches: Sequence[Batch]) -> Step:
        """Take an optimizer step on this process's micro-batches; the result is the same on every process."""
        accelerator = self.accelerator
        targets = torch.stack([torch.as_tensor(self.task.count(batch)) for batch in batches]).sum(0)
        tokens = sum(batch["input_ids"].numel() for batch in batches if "input_ids" in batch)
        others = torch.tensor([tokens, self.stop_requested(), self.save_requested()])
        own = torch.cat((torch.atleast_1d(targets), others))
        # One process asks its device for nothing, and computes ahead of it.
        own = own if accelerator.num_processes == 1 else own.to(accelerator.device)
        *counts, tokens, stop, save = reduce_sum(accelerator, own)
        num_items_in_batch = torch.stack(counts).to(accelerator.device) if len(counts) > 1 else counts[0]
        if num_items_in_batch.device.type != accelerator.device.type:
            num_items_in_batch = num_items_in_batch.item()
        losses = []
        options = no_cache(accelerator.unwrap_model(self.model, keep_torch_compile=False))
        _, processes = data_parallel(accelerator)
        for index, batch in enumerate(batches):
            with nullcontext() if index == len(batches) - 1 else accelerator.no_sync(self.model):
                loss = self.model(**model_inputs(batch), **options, num_items_in_batch=num_items_in_batch).loss
                # Gradients are averaged over processes, but each holds its part of one sum.
                accelerator.backward(loss * processes)
            losses.append(loss.detach())
        clipped: Any = accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.optimization.max_grad_norm)
        norm = clipped.full_tensor() if isinstance(clipped, DTensor) else torch.as_tensor(clipped)
        learning_rate: Any = self.schedule.get_last_lr()[0]
        self.optimizer.step()
        if self.balances:
            balance_experts(self.model)
        self.schedule.step()
        self.optimizer.zero_grad()
        loss = reduce_sum(accelerator, torch.stack(losses).sum())
        return Step(self.done + 1, learning_rate, loss, norm, tokens, bool(stop), bool(save))

    def evaluate(self, split: Examples, kept: list[Answer] | None = None) -> dict[str, float]:
        """Compute the metrics of a split, in batches of the size of training, and append its answers to `kept`."""
        size = self.recipe.optimization.batch_size // self.recipe.optimization.accumulate
        return evaluate(self.accelerator, self.model, self.task, split, size, [] if kept is None else kept)

    def close(self) -> None:
        """End the training, on all processes together; DDP first, or torch 2.13 may deadlock in gloo's threads."""
        self.model = self.accelerator.unwrap_model(self.model)
        self.accelerator.free_memory()
        self.accelerator.end_training()


@contextmanager
def out_of_memory_explained(loop: Loop) -> Iterator[None]:
    """Turn an out-of-memory error of the block into RuntimeError that names the fields to save memory by."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not should_reduce_batch_size(error):
            raise
        batch_size, parts = loop.recipe.optimization.batch_size, loop.recipe.optimization.accumulate
        size = loop.loader.share.size
        more = next((number * parts for number in range(2, size + 1) if size % number == 0), None)
        mend = f"accumulate={more}, which gives the same result" if more else "a smaller text.length or model"
        if loop.task.in_batch_negatives:
            mend = "model.embedding_chunk_size=16, which gives the loss of the whole batch, some pairs at a time"
        raise RuntimeError(
            f"batch_size={batch_size} with accumulate={parts} found no memory on {loop.accelerator.device} after step "
            f"{loop.done}; try {mend}, or gradient_checkpointing=true"
        ) from error


def check_task(task: Task, recipe: Recipe) -> None:
    """Raise ValueError where in-batch negatives would be split into micro-batches, or seen twice."""
    if not task.in_batch_negatives:
        return
    check_in_batch_negatives(f"the pairs of {task.data.name}", recipe.optimization.accumulate)
    if recipe.compute.tensor_parallel > 1:
        raise ValueError(f"with tensor_parallel each pair of {task.data.name} is its own negative; set it to 1")


def check_in_batch_negatives(what: str, accumulate: int) -> None:
    """Raise ValueError where gradient accumulation would leave the negatives of one micro-batch only."""
    if accumulate > 1:
        raise ValueError(
            f"accumulate={accumulate} contrasts {what} within their micro-batch alone; set accumulate=1, and "
            "model.embedding_chunk_size=16 where memory is short"
        )


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Group parameters by decay, of matrices alone, and by mesh, as fused kernels take no mixture of meshes."""
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            dimensions = parameter.device_mesh.ndim if isinstance(parameter, DTensor) else 0
            vector = sum(size > 1 for size in parameter.shape) <= 1
            groups.setdefault((dimensions, vector), []).append(parameter)
    decay = {False: weight_decay, True: 0.0}
    return [{"params": groups[key], "weight_decay": decay[key[1]]} for key in sorted(groups)]
