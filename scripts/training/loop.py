"""How is a model trained? An Accelerate loop whose result depends neither on the number of processes nor of parts.

A model here is anything whose forward takes a batch and `num_items_in_batch` and returns a loss: a sum over targets
divided by that count. The count is taken over the whole optimizer step first, so the parts add up exactly.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedConfig, get_scheduler

from qkv.scripts.training.data import Batch, Examples, Task
from qkv.scripts.training.recipe import Recipe


class StepSampler(Sampler[list[int]]):
    """Indices of one process: `accumulate` lists for each optimizer step, without end.

    Examples come in one endless order, a fresh permutation for each pass over the data, which depends on nothing but
    the seed. Each step takes the next `batch_size` of it, and each process its share of those.
    """

    def __init__(self, size: int, recipe: Recipe, accelerator: Accelerator) -> None:
        processes = accelerator.num_processes
        shares = recipe.accumulate * processes
        if recipe.batch_size % shares:
            raise ValueError(
                f"batch_size={recipe.batch_size} cannot be shared by {processes} processes in parts of "
                f"accumulate={recipe.accumulate}; make it a multiple of {shares}"
            )
        self.size, self.seed, self.accumulate = size, recipe.seed, recipe.accumulate
        self.batch_size, self.part = recipe.batch_size, recipe.batch_size // shares
        self.first = accelerator.process_index * recipe.accumulate * self.part

    def __iter__(self) -> Iterator[list[int]]:
        order = self.order()
        while True:
            step = list(islice(order, self.batch_size))
            for part in range(self.accumulate):
                start = self.first + part * self.part
                yield step[start : start + self.part]

    def order(self) -> Iterator[int]:
        """Every index again and again, each pass in an order of its own."""
        for epoch in count():
            yield from np.random.default_rng((self.seed, epoch)).permutation(self.size).tolist()


@dataclass
class Step:
    """One optimizer step: loss over all its targets, gradient norm before clipping, tokens of all processes."""

    number: int
    learning_rate: float
    loss: Tensor
    grad_norm: Tensor
    tokens: Tensor


@dataclass
class Loop:
    """Model, optimizer and schedule of a training, and the steps it takes."""

    accelerator: Accelerator
    model: nn.Module
    optimizer: Any
    schedule: Any
    recipe: Recipe
    task: Task
    sampler: StepSampler

    @classmethod
    def of(cls, accelerator: Accelerator, model: nn.Module, recipe: Recipe, task: Task) -> "Loop":
        """Wrap the model for its devices, with AdamW and the recipe's schedule; ValueError for an unfit batch size."""
        sampler = StepSampler(len(task.train), recipe, accelerator)
        optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate, fused=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        # Not prepared: Accelerate would advance it once for each process.
        schedule = get_scheduler(recipe.schedule, optimizer, recipe.warmup_steps, recipe.max_steps)
        return cls(accelerator, model, optimizer, schedule, recipe, task, sampler)

    def steps(self) -> Iterator[Step]:
        """Train on the task, yielding after each optimizer step."""
        batches = iter(DataLoader(self.task.train, batch_sampler=self.sampler, collate_fn=self.place))
        self.model.train()
        for number in range(1, self.recipe.max_steps + 1):
            learning_rate = self.schedule.get_last_lr()[0]
            parts = [next(batches) for _ in range(self.recipe.accumulate)]
            yield Step(number, learning_rate, *self.step(parts))

    def place(self, batch: Any) -> Batch:
        """The batch on this process's device."""
        return {name: value.to(self.accelerator.device) for name, value in batch.items()}

    def step(self, parts: Sequence[Batch]) -> tuple[Tensor, Tensor, Tensor]:
        """One optimizer step on this process's parts: loss, gradient norm, tokens, the same on every process."""
        accelerator = self.accelerator
        config = accelerator.unwrap_model(self.model).config
        mine = [sum(self.task.count(part) for part in parts), sum(positions(part, config) for part in parts)]
        targets, tokens = accelerator.reduce(torch.tensor(mine, device=accelerator.device), "sum")
        losses = []
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                loss = self.model(**part, num_items_in_batch=targets).loss
                # Gradients are averaged over processes, but each process holds its part of one sum.
                accelerator.backward(loss * accelerator.num_processes)
            losses.append(loss.detach())
        norm = accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return accelerator.reduce(torch.stack(losses).sum(), "sum"), norm, tokens

    @torch.no_grad()
    def evaluate(self, split: Examples) -> dict[str, float]:
        """Loss and metrics over a split, each a mean over its targets; every process takes every n-th batch."""
        # Without its wrapper, which would wait for processes that have a batch less.
        model = self.accelerator.unwrap_model(self.model)
        rank, processes, size = self.accelerator.process_index, self.accelerator.num_processes, self.recipe.batch_size
        model.eval()
        sums: dict[str, float] = defaultdict(float)
        for start in range(0, len(split), size)[rank::processes]:
            batch = self.place(split.__getitems__(range(start, min(start + size, len(split)))))
            outputs = model(**batch, num_items_in_batch=1)
            sums["targets"] += self.task.count(batch)
            for name, value in {"loss": outputs.loss, **self.task.score(outputs, batch)}.items():
                sums[name] += value.item()
        model.train()
        found = gather_object([dict(sums)])
        totals = {name: sum(part.get(name, 0.0) for part in found) for name in found[0]}
        return {name: total / totals["targets"] for name, total in totals.items() if name != "targets"}


def positions(batch: Batch, config: PreTrainedConfig) -> int:
    """How many tokens of text, or patches of images, a batch holds."""
    if "pixel_values" in batch:
        return batch["pixel_values"].numel() // (config.num_channels * config.patch_size**2)
    return batch["input_ids"].numel()


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only: biases, norms and single tokens are no directions to shrink."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.squeeze().ndim > 1]
    others = [parameter for parameter in trained if parameter.squeeze().ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
