"""ONNX graphs of models, run by ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Graph:
    """The ONNX graph of a module of tensors by position, exported to a file with some dimensions left open."""

    def __init__(
        self, module: nn.Module, given: Sequence[Tensor], path: Path, shapes: Sequence[dict[int, Any]]
    ) -> None:
        import onnxruntime

        torch.onnx.export(
            module.eval(), tuple(given), path, dynamo=True, dynamic_shapes=(tuple(shapes),), verbose=False
        )
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def __call__(self, *values: Tensor) -> list[Tensor]:
        names = [each.name for each in self.session.get_inputs()]
        named = zip(names, (value.numpy() for value in values), strict=True)
        return [torch.from_numpy(each) for each in self.session.run(None, dict(named))]
