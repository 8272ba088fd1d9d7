"""Time the steps of a training beside bare ones on the same batches: what loader, counts and logs add to them."""

from argparse import Namespace
from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from qkv.scripts.common.tables import print_table
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.lab.benchmarking.timing import in_turns, ratios, seconds
from qkv.scripts.recipes.loading import changed, load
from qkv.scripts.training.accelerator import build_accelerator, seed_ranks, with_device_defaults
from qkv.scripts.training.logger import MetricLogger
from qkv.scripts.training.loop import Loop, parameter_groups
from qkv.scripts.training.run import build, load_task


class KeepingLoop(Loop):
    """A loop that keeps the batches of its steps until the bare step takes them, one step behind it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kept: deque[list[Batch]] = deque()

    def step(self, batches: Sequence[Batch]) -> Any:
        """Keep the batches, and take the step."""
        self.kept.append(list(batches))
        seed_ranks(self.accelerator, self.done)
        return super().step(batches)


class BareStep:
    """Forward, backward, clipping and AdamW, as few lines as train a model by torch alone."""

    def __init__(self, loop: KeepingLoop, model: PreTrainedModel) -> None:
        self.loop, self.recipe = loop, loop.recipe
        self.model = loop.accelerator.prepare_model(model)
        rate, decay = self.recipe.optimization.learning_rate, self.recipe.optimization.weight_decay
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model, decay), lr=rate, fused=True)
        self.done = 0

    def __call__(self) -> Tensor:
        """Take a step that the loop has taken, with the same batches and seed, and return the loss."""
        batches = self.loop.kept.popleft()
        seed_ranks(self.loop.accelerator, self.done)
        self.done += 1
        count = torch.stack([torch.as_tensor(self.loop.task.count(batch)) for batch in batches]).sum(0)
        count = count.to(self.loop.accelerator.device) if count.ndim else count.item()
        total = torch.zeros((), device=self.loop.accelerator.device)
        for batch in batches:
            loss = self.model(**model_inputs(batch), num_items_in_batch=count).loss
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimization.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def run(arguments: Namespace) -> None:
    """Print the seconds of both steps and their ratio; RuntimeError where they differ in a weight."""
    recipe = load(arguments.recipe, arguments.overrides)
    # The bare step has no schedule: its learning rate is the same from the first step to the last.
    steady: Any = {"warmup_steps": 0, "schedule": "constant_with_warmup"}
    recipe = with_device_defaults(changed(recipe, epochs=None, max_steps=arguments.rounds + 2, **steady))
    accelerator, task = build_accelerator(recipe), load_task(recipe)
    model = task.before_training(build(recipe, task))
    alike = deepcopy(model)
    loop = KeepingLoop(accelerator, model, recipe, task)
    bare, steps = BareStep(loop, alike.train()), loop.steps()
    with TemporaryDirectory() as folder:
        logger = MetricLogger(Path(folder), recipe, accelerator)

        def taken() -> None:
            logger.log_step(next(steps))

        with logger.start(0):
            taken()
            laps = in_turns({"loop": taken, "bare": bare}, arguments.rounds, lambda name, step: seconds(step))
            bare()
    check_equal(loop, bare)
    low, middle, high = ratios(laps["loop"], laps["bare"])
    rows = {name: f"{median(each):.4f} s" for name, each in laps.items()}
    rows["loop / bare"] = f"{middle:.3f} ({low:.2f} to {high:.2f})"
    print_table(f"a step of {recipe.name} on {accelerator.device}, {arguments.rounds} rounds", rows)


def check_equal(loop: Loop, bare: BareStep) -> None:
    """Raise RuntimeError where a weight of the two trainings differs."""
    pairs = zip(loop.model.named_parameters(), bare.model.parameters(), strict=True)
    for (name, one), other in pairs:
        if not torch.equal(one, other):
            raise RuntimeError(f"{name} differs by {(one - other).abs().max().item():.3g} after the same steps")
