"""Compare contenders with the stock model before anything is timed: outputs at real tokens, the loss, gradients."""

from typing import Any

import torch
from torch import Tensor

from qkv.scripts.lab.benchmarking.batches import Inputs, real_tokens, without_labels
from qkv.scripts.lab.benchmarking.candidate import Candidate, Tensors
from qkv.scripts.lab.benchmarking.steps import generate, mixed_precision
from qkv.scripts.lab.benchmarking.workloads import Workload

# Greatest difference, over the greatest number of a tensor.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 1e-1, torch.float16: 1e-2}
# Gradients whose greatest is below this share of the greatest of all are compared with that share: some, such as those
# of biases of keys, are nothing but rounding.
SMALL = 1e-2
TOKENS = "tokens"


class UnequalError(RuntimeError):
    """A contender computes something else."""


def evidence(model: Any, workload: Workload, inputs: Inputs, dtype: torch.dtype) -> Tensors:
    """Return what a model computes of a batch: outputs of real tokens, and the loss or the tokens it generates."""
    model.train(workload.step == "train")
    given = without_labels(inputs, getattr(model, "config", None))
    with torch.no_grad(), mixed_precision(model, dtype):
        output = model(**given)
    real = real_tokens(workload, inputs)
    name = "logits" if "logits" in output else "last_hidden_state"
    results = {name: output[name] if real is None else output[name][real]}
    if workload.step == "generate":
        results[TOKENS] = generate(model, inputs, workload)
    if workload.step == "train":
        with mixed_precision(model, dtype):
            loss = model(**inputs).loss
        loss.backward()
        results["loss"] = loss.detach()
    return results


def gradients(model: Any) -> Tensors:
    """Return the gradients of a model by name, tied ones under each of their names, and remove them from it."""
    weights = model.named_parameters(remove_duplicate=False)
    taken = {name: weight.grad for name, weight in weights if weight.grad is not None}
    model.zero_grad()
    return taken


def check_equal(
    name: str, candidate: Candidate, wanted: tuple[Tensors, Tensors], actual: Tensors, dtype: torch.dtype
) -> dict[str, float]:
    """Return the greatest differences of results and gradients; UnequalError where one is above the tolerance."""
    results, slopes = wanted
    if candidate.translated is None:
        return {}
    differences = {key: distance(actual[key], results[key]) for key in results if key != TOKENS}
    slopes = candidate.translated(slopes) if slopes else {}
    greatest = max((value.abs().max().item() for value in slopes.values()), default=0.0)
    own = gradients(candidate.model)
    if missing := slopes.keys() - own.keys():
        raise UnequalError(f"{name} has no gradient of {min(missing)}, which transformers has")
    apart = {key: distance(own[key], value, SMALL * greatest) for key, value in slopes.items()}
    for key, difference in {**differences, **{f"gradient of {key}": value for key, value in apart.items()}}.items():
        if not difference <= TOLERANCES[dtype]:
            raise UnequalError(
                f"{name} differs from transformers in {key} by {difference:.2g}; there is nothing to time"
            )
    if TOKENS in results and dtype == torch.float32 and not torch.equal(actual[TOKENS], results[TOKENS]):
        raise UnequalError(f"{name} generates other tokens than transformers; there is nothing to time")
    return differences | ({"gradients": max(apart.values())} if apart else {})


def distance(actual: Tensor, wanted: Tensor, floor: float = 0.0) -> float:
    """Return the greatest difference over the greatest number that is wanted, or over a floor that is above it."""
    if actual.shape != wanted.shape:
        raise UnequalError(f"shapes {tuple(actual.shape)} and {tuple(wanted.shape)} cannot be compared")
    scale = max(wanted.abs().max().item(), floor, torch.finfo(wanted.dtype).tiny)
    return (actual - wanted).abs().max().item() / scale
