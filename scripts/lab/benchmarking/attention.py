"""Name the kernels that compute attention, as a profile of a step has them."""

import re
from collections.abc import Callable

import torch

# The word before in names of operations; those that they call themselves end in _forward.
KERNEL = re.compile("(varlen|flex|cudnn|flash|efficient)_att(?:entio)?n(?!_forward|_backward)")


def attention_of(step: Callable[[], object]) -> str:
    """Return the kernels of attention that a step calls, "eager" for softmax alone; replayed graphs are unseen."""
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        step()
    called = " ".join({event.name for event in profile.function_events})
    return " + ".join(sorted({*KERNEL.findall(called)})) or ("eager" if "softmax" in called else "")
