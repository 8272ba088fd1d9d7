"""Memory of a model of pairs grows as its pairs do, and not by one for each three residues."""

import math
import time
from collections.abc import Callable
from statistics import linear_regression

import pytest
import torch
from watching import number

import qkv
from qkv.scripts.training.memory.tracker import MemoryTracker

SIZES = {
    **{"vocab_size": 33, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"pair_hidden_size": 16, "num_pair_attention_heads": 2, "pair_intermediate_size": 32},
}
# The steepest that memory may grow: pairs, and residues beside them, are L² at most.
QUADRATIC = 2.05


@pytest.mark.parametrize("checkpointing", [False, True])
def test_memory_of_pairs_is_quadratic(record: Callable[..., None], checkpointing: bool) -> None:
    torch.manual_seed(0)
    model = qkv.QkvPairForContactPrediction(qkv.QkvPairConfig(**SIZES, chunk_size=32))
    if checkpointing:
        model.gradient_checkpointing_enable()
    lengths = [length for length in (64, 128, 256, 512) if length <= number("RESIDUES", 512)]
    costs = {length: step_costs(model, length) for length in lengths}
    growth = {what: exponent({length: cost[what] for length, cost in costs.items()}) for what in ("bytes", "seconds")}
    assert growth["bytes"] <= QUADRATIC, costs
    megabytes = ", ".join(f"{cost['bytes'] / 1e6:,.0f}" for cost in costs.values())
    seconds = ", ".join(f"{cost['seconds']:.2g}" for cost in costs.values())
    again = ", with gradient checkpointing" if checkpointing else ""
    record(
        f"a step of training, model of pairs of two blocks, 32 and 16 wide, chunks of 32 rows{again}",
        f"one chain of {', '.join(map(str, lengths))} residues",
        f"{megabytes} MB of tensors, L^{growth['bytes']:.2f}; {seconds} CPU seconds, L^{growth['seconds']:.2f}",
        costs=costs,
        growth=growth,
    )


def step_costs(model: qkv.QkvPairForContactPrediction, length: int) -> dict[str, float]:
    """The bytes of the tensors of a step at their peak, and its CPU seconds without their count."""
    ids, contacts = torch.randint(33, (1, length)), torch.randint(2, (1, length, length))

    def step() -> None:
        model(ids, labels=contacts).loss.backward()
        model.zero_grad()

    with MemoryTracker() as tracker:
        step()
    began = time.process_time()
    step()
    return {"bytes": tracker.peak.total(), "seconds": time.process_time() - began}


def exponent(costs: dict[int, float]) -> float:
    """The power of the length with which a cost grows, by least squares of its logarithms."""
    return linear_regression([math.log(length) for length in costs], [math.log(cost) for cost in costs.values()]).slope
