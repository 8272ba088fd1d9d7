"""Schedule the learning rate, whose peak is the recipe's `learning_rate`."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from qkv.scripts.recipes.schema import Schedule


def make_schedule(optimizer: Optimizer, schedule: Schedule, max_steps: int) -> LRScheduler:
    """Return the recipe's schedule: transformers' own, but for Noam's."""
    if schedule.name == "noam":
        return noam(optimizer, schedule.warmup_steps)
    if schedule.name == "wsd":
        return wsd(optimizer, schedule, max_steps)
    return get_scheduler(schedule.name, optimizer, schedule.warmup_steps, max_steps)


def wsd(optimizer: Optimizer, schedule: Schedule, max_steps: int) -> LRScheduler:
    """Warm up linearly, stay, and decay linearly over the last `decay_steps`.

    Source: Hu et al. 2024, MiniCPM, §4.2, https://arxiv.org/abs/2404.06395
    """
    decay = {"num_decay_steps": schedule.decay_steps, "decay_type": "linear"}
    return get_scheduler(
        "warmup_stable_decay", optimizer, schedule.warmup_steps, max_steps, scheduler_specific_kwargs=decay
    )


def noam(optimizer: Optimizer, warmup_steps: int) -> LRScheduler:
    """Warm up linearly, then decay by the inverse square root of the step.

    transformers' `inverse_sqrt` counts steps from 0, and so lags one step behind the paper.

    Source: Vaswani et al. 2017, §5.3, equation 3, https://arxiv.org/abs/1706.03762. Theirs is this with the peak
        hidden_size**-0.5 * warmup_steps**-0.5.
    """
    warmup = max(warmup_steps, 1)
    return LambdaLR(optimizer, lambda done: min((done + 1) / warmup, (warmup / (done + 1)) ** 0.5))
