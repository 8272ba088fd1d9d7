"""One step of a workload on a model that is called as those of transformers are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from qkv.scripts.lab.benchmarking.batches import Inputs
from qkv.scripts.lab.benchmarking.workloads import Workload

LEARNING_RATE = 1e-5


def step_of(workload: Workload, model: nn.Module, inputs: Inputs, dtype: torch.dtype) -> Callable[[], Any]:
    """Return the step that is timed."""
    model.train(workload.step == "train")
    if workload.step == "train":
        return training_step(model, inputs, dtype)
    if workload.step == "generate":
        return lambda: generate(model, inputs, workload)
    return lambda: encode(model, inputs)


def training_step(model: Any, inputs: Inputs, dtype: torch.dtype) -> Callable[[], None]:
    """Return a step of forward, backward and AdamW; the optimizer is the same for all contenders."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> None:
        with mixed_precision(model, dtype):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def mixed_precision(model: Any, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Compute in a lower precision than the weights have, where one is asked for."""
    weight = next(model.parameters())
    return torch.autocast(weight.device.type, dtype, enabled=dtype != weight.dtype)


@torch.no_grad()
def encode(model: Any, inputs: Inputs) -> Any:
    """Return the output for a batch."""
    return model(**inputs)


def generate(model: Any, inputs: Inputs, workload: Workload) -> Any:
    """Return the tokens after prompts, as many as asked for: no contender's model ends a text before."""
    return model.generate(**inputs, max_new_tokens=workload.new_tokens, num_beams=workload.beams, do_sample=False)
