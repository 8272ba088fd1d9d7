"""Outcomes of a check, and the comparison of tensors that decides about them."""

from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor

# Of the largest value. Rounding in float32 gave 1e-7 to 1e-5 on a hundred stock classes, faults 1e-3 to 1.
TOLERANCE = 1e-4
# Weights and buffers are copied, not computed.
STORED = 1e-6
# Gradients add up as many terms as a batch has tokens.
GRADIENTS = 1e-3


class ConformanceError(RuntimeError):
    """A model is wrong without saying so."""


class Limit(SkipTest):  # noqa: N818  as unittest's own
    """A model differs where its documentation says so, or where nothing is promised."""


class NotApplicable(SkipTest):  # noqa: N818
    """A check does not apply to a model."""


def require(condition: object, reason: str) -> None:
    """Raise ConformanceError unless a condition holds."""
    if not condition:
        raise ConformanceError(reason)


def limit_if(condition: object, reason: str) -> None:
    """Raise Limit if a condition holds."""
    if condition:
        raise Limit(reason)


def skip_if(condition: object, reason: str) -> None:
    """Raise NotApplicable if a condition holds."""
    if condition:
        raise NotApplicable(reason)


def distance(expected: Tensor, actual: Tensor) -> float:
    """Return the largest difference as a share of the largest value; infinity where only one is finite."""
    require(expected.shape == actual.shape, f"shapes {tuple(expected.shape)} and {tuple(actual.shape)}")
    if not expected.numel():
        return 0.0
    expected, actual = expected.detach().float(), actual.detach().float()
    if not torch.equal(expected.isfinite(), actual.isfinite()):
        return float("inf")
    largest = expected.nan_to_num(0, 0, 0).abs().max().clamp(min=1e-6)
    return ((expected - actual).nan_to_num(0, 0, 0).abs().max() / largest).item()


def require_close(expected: Tensor, actual: Tensor, subject: str, tolerance: float = TOLERANCE) -> None:
    """Raise ConformanceError where two tensors differ by more than a share of the largest value."""
    off = distance(expected, actual)
    require(off <= tolerance, f"{subject}: off by {off:.2g} of the largest value (allowed {tolerance:g})")


def require_same_tokens(expected: Tensor, actual: Tensor, subject: str) -> None:
    """Raise ConformanceError where two searches wrote other tokens."""
    same = expected.shape == actual.shape and torch.equal(expected, actual)
    require(same, f"{subject}: tokens {expected[0].tolist()} and {actual[0].tolist()}")


def main_output(output: Any) -> Tensor:
    """Return the tensor of an output that checks compare: logits, else states."""
    if torch.is_tensor(output.get("image_embeds")) and torch.is_tensor(output.get("text_embeds")):
        return torch.cat([output["image_embeds"], output["text_embeds"]], -1)
    if torch.is_tensor(output.get("start_logits")) and torch.is_tensor(output.get("end_logits")):
        return torch.stack([output["start_logits"], output["end_logits"]], -1)
    names = ("logits", "prediction_logits", "last_hidden_state", "pooler_output", *output)
    found = (output[name] for name in names if torch.is_tensor(output.get(name)))
    return next(tensor for tensor in found if tensor.is_floating_point() and tensor.dim())


def score(output: Any) -> Tensor:
    """Return a number with another gradient for each value of the main output."""
    values = main_output(output).float()
    return (values * torch.linspace(-1, 1, values.numel()).view_as(values)).sum()
