"""How does the learning rate change over the steps? Each schedule a factor of the recipe's `learning_rate`."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from qkv.scripts.recipes.schema import Recipe


def noam(optimizer: Optimizer, recipe: Recipe) -> LRScheduler:
    """Linear warm-up, then the inverse square root of the step; `learning_rate` is what is reached between them.

    Source: Vaswani et al. 2017, §5.3, equation 3, https://arxiv.org/abs/1706.03762. Theirs is this with the peak
        hidden_size**-0.5 * warmup_steps**-0.5.
    """
    warmup = max(recipe.warmup_steps, 1)
    return LambdaLR(optimizer, lambda done: min((done + 1) / warmup, (warmup / (done + 1)) ** 0.5))


def wsd(optimizer: Optimizer, recipe: Recipe) -> LRScheduler:
    """Warm-up, a plateau, and a decay to nothing over the last `decay_steps`.

    Source: Hu et al. 2024, MiniCPM, §4.2, https://arxiv.org/abs/2404.06395
    """
    decay = {"num_decay_steps": recipe.decay_steps, "decay_type": "linear"}
    return get_scheduler(
        "warmup_stable_decay", optimizer, recipe.warmup_steps, recipe.max_steps, scheduler_specific_kwargs=decay
    )


def of_transformers(name: str) -> Callable[[Optimizer, Recipe], Any]:
    """The schedule of that name in transformers."""
    return lambda optimizer, recipe: get_scheduler(name, optimizer, recipe.warmup_steps, recipe.max_steps)


SCHEDULES: dict[str, Callable[[Optimizer, Recipe], Any]] = {
    "noam": noam,
    "linear": of_transformers("linear"),
    "cosine": of_transformers("cosine"),
    "wsd": wsd,
    "constant_with_warmup": of_transformers("constant_with_warmup"),
}
