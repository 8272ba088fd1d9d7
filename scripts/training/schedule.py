"""Schedule the learning rate, whose peak is the recipe's `learning_rate`, and the length of a training."""

import math
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from qkv.scripts.common.phases import say
from qkv.scripts.recipes.loading import changed
from qkv.scripts.recipes.schema import Recipe, Schedule


def make_schedule(optimizer: Optimizer, schedule: Schedule, max_steps: int) -> LRScheduler:
    """Return the recipe's schedule: transformers', except Noam's."""
    if schedule.name == "noam":
        return noam(optimizer, schedule.warmup_steps)
    name: str = schedule.name
    options: dict[str, Any] | None = None
    if schedule.name == "wsd":  # Hu et al. 2024, MiniCPM, §4.2, https://arxiv.org/abs/2404.06395
        name, options = "warmup_stable_decay", {"num_decay_steps": schedule.decay_steps, "decay_type": "linear"}
    return get_scheduler(name, optimizer, schedule.warmup_steps, max_steps, scheduler_specific_kwargs=options)


def noam(optimizer: Optimizer, warmup_steps: int) -> LRScheduler:
    """Warm up linearly, then decay by the inverse square root of the step, which transformers' counts from 0.

    Source: Vaswani et al. 2017, §5.3, equation 3, https://arxiv.org/abs/1706.03762. Theirs has the peak
        hidden_size**-0.5 * warmup_steps**-0.5.
    """
    warmup = max(warmup_steps, 1)
    return LambdaLR(optimizer, lambda done: min((done + 1) / warmup, (warmup / (done + 1)) ** 0.5))


def with_max_steps(recipe: Recipe, train: Any) -> Recipe:
    """Replace `epochs` by `max_steps`; ValueError for a stream, whose number of examples is not known."""
    epochs, batch_size = recipe.optimization.epochs, recipe.optimization.batch_size
    if epochs is None:
        return recipe
    if not hasattr(train, "__len__"):
        raise ValueError(f"epochs={epochs:g} needs the number of examples, which a stream has not; give max_steps=")
    steps = math.ceil(epochs * len(train) / batch_size)
    say(f"epochs={epochs:g} is max_steps={steps}: {len(train):,} examples, {batch_size} in a step")
    return changed(recipe, max_steps=steps, epochs=None)
