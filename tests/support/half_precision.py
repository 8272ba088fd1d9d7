"""Outputs of official classes and ours in half precision."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from families import ROWS
from families.base import Row

# One class of each architecture.
FIRST = {row.family.model_type: row for row in reversed(ROWS) if row.name == "" and row.head != "ForObjectDetection"}


def run(row: Row, model: PreTrainedModel, *, ours: bool) -> dict[str, Tensor]:
    """The floating-point outputs at real tokens."""
    inputs, dtype = row.inputs("none"), next(model.parameters()).dtype
    given = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    with torch.no_grad():
        output = model(**row.placed(given, ours=ours))
    states = {name: value for name, value in output.items() if isinstance(value, Tensor) and "loss" not in name}
    return {name: row.real(name, value, inputs, ours=ours).float() for name, value in states.items()}
