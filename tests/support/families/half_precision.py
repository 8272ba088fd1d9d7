"""Outputs of official classes and ours in half precision."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from . import ROWS
from .base import Row
from .inputs import tokens

# One class of each architecture.
FIRST = {row.family.model_type: row for row in reversed(ROWS) if row.name == "" and row.head != "ForObjectDetection"}


def inputs_of(row: Row) -> dict[str, Tensor]:
    """Inputs without padding; of mixtures many, for rounding sends a few tokens to other experts, theirs and ours."""
    if not hasattr(row.config(), "num_experts_per_tok"):
        return row.inputs("none")
    many = [tokens(seed, side="none") for seed in range(192)]
    return {name: torch.cat([each[name] for each in many]) for name in many[0]}


def run(row: Row, model: PreTrainedModel, *, ours: bool) -> dict[str, Tensor]:
    """The floating-point outputs at real tokens."""
    inputs, dtype = inputs_of(row), next(model.parameters()).dtype
    given = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    with torch.no_grad():
        output = model(**row.placed(given, ours=ours))
    states = {name: value for name, value in output.items() if isinstance(value, Tensor) and "loss" not in name}
    return {name: row.real(name, value, inputs, ours=ours).float() for name, value in states.items()}
