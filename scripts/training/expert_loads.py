"""Measure how evenly a mixture of experts sends tokens to its experts.

Shapes: N real tokens, k experts of a token.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from qkv.modeling.heads.routing import routers_of
from qkv.scripts.data.examples import model_inputs
from qkv.scripts.tasks.task import Task

LOADS = "experts.png"


def loads_of_test_split(model: Any, task: Task, size: int) -> list[list[float]]:
    """Return the loads of experts in the test split, read in batches of `size`; empty without experts or that split."""
    if "test" not in task.splits or not routers_of(model):
        return []
    examples = task.splits["test"]
    starts = range(0, len(examples), size)
    records = (examples.__getitems__(range(start, min(start + size, len(examples)))) for start in starts)
    batches = (model_inputs(task.collate(each, None)) for each in records)
    return expert_loads(model, ({**batch, "labels": None} for batch in batches))


@torch.no_grad()
def expert_loads(model: Any, batches: Iterable[dict[str, Any]]) -> list[list[float]]:
    """Return the share of choices that falls on each expert of each layer that is a mixture, by real tokens alone.

    A layer's shares add up to 1, and are even at 1 / num_experts.
    """
    routers, chosen = routers_of(model), []
    hooks = [router.register_forward_hook(lambda *call: chosen.append(call[-1][-1])) for router in routers]
    counts = torch.zeros(len(routers), model.config.num_experts, dtype=torch.float64)
    try:
        for batch in batches:
            chosen.clear()
            inputs = {name: value.to(model.device) for name, value in batch.items() if isinstance(value, Tensor)}
            model(**inputs)
            for count, index in zip(counts, chosen, strict=True):
                count += torch.bincount(real_choices(index, inputs.get("attention_mask")), minlength=len(count)).cpu()
    finally:
        for hook in hooks:
            hook.remove()
    return (counts / counts.sum(1, keepdim=True)).tolist()


def real_choices(index: Tensor, mask: Tensor | None) -> Tensor:
    """Return the experts of real tokens: (all tokens, k) -> (N k); where padding was removed, all are real."""
    is_padded = mask is not None and mask.numel() == len(index)
    return (index[mask.flatten().bool()] if mask is not None and is_padded else index).flatten()


def draw_loads(loads: list[list[float]], path: Path) -> None:
    """Draw the share of choices of each expert, a panel for each layer, beside the share of even loads."""
    figure = Figure(figsize=(2.6 * len(loads), 2.6), layout="constrained")
    panels = figure.subplots(1, len(loads), squeeze=False, sharey=True)[0]
    for number, (axis, shares) in enumerate(zip(panels, loads, strict=True), 1):
        axis.bar(range(len(shares)), [100 * share for share in shares], color="#4878a8")
        axis.axhline(100 / len(shares), color="gray", linestyle=":", label="even")
        axis.set(title=f"mixture {number} of {len(loads)}", xlabel="expert", xticks=range(len(shares)))
    panels[0].set_ylabel("% of choices")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, dpi=110)
