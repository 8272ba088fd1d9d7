"""How is a model trained? An Accelerate loop whose result depends neither on the number of processes nor of parts.

A model here is anything whose forward takes a batch and `num_items_in_batch` and returns a loss: a sum over targets
divided by that count. The count is taken over the whole optimizer step first, so the parts add up exactly.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel

from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Batch, Examples, Task
from qkv.scripts.training.accelerator import data_parallel, prepare, total
from qkv.scripts.training.ema import Average
from qkv.scripts.training.evaluation import evaluate, inputs, place, uncached
from qkv.scripts.training.sampler import Feed, Share
from qkv.scripts.training.schedule import SCHEDULES
from qkv.scripts.training.stream_loader import make_feed


@dataclass
class Step:
    """One optimizer step: loss over all its targets, gradient norm before clipping, tokens of all processes.

    `stop` says on every process that one of them was asked to end the training.
    """

    number: int
    learning_rate: float
    loss: Tensor
    grad_norm: Tensor
    tokens: Tensor
    stop: bool = False


@dataclass
class Loop:
    """Model, optimizer, schedule and data of a training, and the steps it takes; `done` of them are behind it."""

    accelerator: Accelerator
    model: nn.Module
    optimizer: Any
    schedule: Any
    recipe: Recipe
    task: Task
    feed: Feed
    average: Average | None = None
    done: int = 0
    # Whether this process should end the training; asked before each step, and answered by all together after it.
    asked: Callable[[], bool] = lambda: False

    @classmethod
    def of(cls, accelerator: Accelerator, model: PreTrainedModel, recipe: Recipe, task: Task) -> "Loop":
        """Wrap the model for its devices, with AdamW and a schedule; ValueError for a batch that cannot be cut so."""
        refuse_parts(task, recipe)
        feed = make_feed(task, recipe, Share.of(accelerator, recipe))
        if recipe.gradient_checkpointing:
            model.activation_checkpointing_enable()
        optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.learning_rate, fused=True)
        prepared, optimizer = prepare(accelerator, model, optimizer)
        # Not prepared: Accelerate would advance it once for each process.
        schedule = SCHEDULES[recipe.schedule](optimizer, recipe)
        average = Average(prepared, recipe.ema_decay) if recipe.ema_decay else None
        return cls(accelerator, prepared, optimizer, schedule, recipe, task, feed, average)

    def steps(self) -> Iterator[Step]:
        """Train on the task from where it is, yielding after each optimizer step."""
        batches = self.feed.parts(self.done)
        self.model.train()
        while self.done < self.recipe.max_steps:
            learning_rate = self.schedule.get_last_lr()[0]
            parts = [place(next(batches), self.accelerator) for _ in range(self.recipe.accumulate)]
            found = self.step(parts)
            self.done += 1
            yield Step(self.done, learning_rate, *found)

    def step(self, parts: Sequence[Batch]) -> tuple[Tensor, Tensor, Tensor, bool]:
        """One optimizer step on this process's parts: loss, gradient norm, tokens, stop, the same on every process."""
        accelerator = self.accelerator
        config = accelerator.unwrap_model(self.model).config
        counts = torch.stack([torch.as_tensor(self.task.count(part)) for part in parts]).sum(0)
        others = torch.tensor([sum(positions(part, config) for part in parts), self.asked()])
        mine = torch.cat((torch.atleast_1d(counts), others)).to(accelerator.device)
        *targets, tokens, stop = total(accelerator, mine)
        items = torch.stack(targets) if len(targets) > 1 else targets[0]
        losses = []
        options = uncached(accelerator, self.model)
        _, shares = data_parallel(accelerator)
        for index, part in enumerate(parts):
            # DeepSpeed takes its step within the backward pass that it is told is the last.
            accelerator.sync_gradients = last = index == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                loss = self.model(**inputs(part), **options, num_items_in_batch=items).loss
                # Gradients are averaged over shares of the data, but each holds its part of one sum.
                accelerator.backward(loss * shares)
            losses.append(loss.detach())
        norm = clip(accelerator, self.model, self.recipe.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        if self.average:
            self.average.update()
        return total(accelerator, torch.stack(losses).sum()), norm, tokens, bool(stop)

    def kept(self) -> AbstractContextManager[None]:
        """Within this the model has the weights that are evaluated and kept."""
        return self.average.in_use() if self.average else nullcontext()

    def settle(self) -> None:
        """Give the model for good the weights that are kept; it is not trained any more."""
        if self.average:
            self.average.put(list(self.average.weights.values()))
            self.average = None

    def evaluate(self, split: Examples) -> dict[str, float]:
        """Metrics of the model as it is now over a split."""
        with self.kept():
            return evaluate(self.accelerator, self.model, self.task, split, self.recipe.batch_size)


def refuse_parts(task: Task, recipe: Recipe) -> None:
    """Raise ValueError where a step would be taken in parts, or seen twice, though its examples compete."""
    if task.contested:
        refuse_apart(f"the pairs of {task.name}", recipe.accumulate)
    if task.contested and recipe.tensor_parallel > 1:
        raise ValueError(
            f"tensor_parallel={recipe.tensor_parallel} would let each pair of {task.name} compete with itself; set "
            "tensor_parallel=1"
        )


def refuse_apart(what: str, accumulate: int) -> None:
    """Raise ValueError where examples that compete would be taken in parts."""
    if accumulate > 1:
        raise ValueError(
            f"accumulate={accumulate} would let {what} compete within their part alone; set accumulate=1, and "
            "model.embedding_chunk_size=16 where memory is short, which gives the loss of all"
        )


def positions(batch: Batch, config: PreTrainedConfig) -> int:
    """How many tokens of text, patches of images, moments of sound, or pixels that have no patches a batch holds."""
    if "pixel_mask" in batch:
        return int(batch["pixel_mask"].sum())
    if "pixel_values" in batch:
        image = getattr(config, "vision_config", config)
        return batch["pixel_values"].numel() // (image.num_channels * image.patch_size**2)
    if "input_features" in batch:
        sound, rows = getattr(config, "encoder", config), len(batch["input_features"])
        # Stock models call them otherwise, and have strides that no config says.
        bins = getattr(sound, "num_mel_bins", None) or sound.input_feat_per_channel
        strides = getattr(sound, "conv_strides", None) or (2,) * getattr(sound, "num_conv_layers", 1)
        frames = batch["input_features"][0].numel() // bins  # whichever axis holds the bins
        return rows * ceil(frames / prod(strides))
    return batch["input_ids"].numel()


def clip(accelerator: Accelerator, model: nn.Module, largest: float) -> Tensor:
    """The norm of the gradient of the whole model, before it was scaled down to the largest that is allowed."""
    norm: Any = accelerator.clip_grad_norm_(model.parameters(), largest)
    return norm.full_tensor() if isinstance(norm, DTensor) else torch.as_tensor(norm)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only: biases, norms and single tokens are no directions to shrink.

    Parameters that are cut over other processes have groups of their own, for one kernel cannot take them together.
    """
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            cuts = parameter.device_mesh.ndim if isinstance(parameter, DTensor) else 0
            vector = sum(size > 1 for size in parameter.shape) <= 1
            groups.setdefault((cuts, vector), []).append(parameter)
    decay = {False: weight_decay, True: 0.0}
    return [{"params": groups[cuts, vector], "weight_decay": decay[vector]} for cuts, vector in sorted(groups)]
