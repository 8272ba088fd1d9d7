"""torch.export and ONNX: graphs for every length and batch, equal in another runtime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

import tiny

onnxruntime = pytest.importorskip("onnxruntime", reason="`make clients` installs it", exc_type=ImportError)
pytest.importorskip("onnxscript", reason="`make clients` installs it", exc_type=ImportError)

HEADS: list[tuple[str, Any]] = [
    *((kind, AutoModelForCausalLM) for kind in ("gpt2", "llama", "mistral", "bloom")),
    ("bert", AutoModelForMaskedLM),
    ("bert", AutoModelForSequenceClassification),
    ("vit", AutoModelForImageClassification),
    ("t5", AutoModelForSeq2SeqLM),
    ("bart", AutoModelForSeq2SeqLM),
]


class First(nn.Module):
    """The first output of a model, by position, as graphs have it."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> Tensor:
        inputs = dict(zip(self.names, values, strict=True))
        return (
            self.model(**inputs, use_cache=False, return_dict=False)[0]
            if "input_ids" in inputs
            else self.model(**inputs)[0]
        )


def inputs_of(kind: str, *, batch: int, length: int) -> dict[str, Tensor]:
    """Inputs of that size; texts are padded on the right."""
    if kind == "vit":
        return tiny.images(batch=batch, size=(16, 16))
    given = tiny.text(batch=batch, length=length)
    if kind in ("t5", "bart"):
        given |= {"decoder_input_ids": tiny.text(batch=batch, length=length - 2, seed=3)["input_ids"]}
    return given


def dimensions(name: str, value: Tensor) -> dict[int, Any]:
    """Batch and length of an input may be any."""
    any_batch = {0: torch.export.Dim("batch", min=2, max=64)}
    if name == "pixel_values":
        return any_batch
    return {**any_batch, 1: torch.export.Dim("target" if name.startswith("decoder") else "length", min=2, max=40)}


@pytest.mark.parametrize(("kind", "head"), HEADS, ids=lambda value: getattr(value, "__name__", value))
def test_onnx(kind: str, head: Any, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    def exported(model: PreTrainedModel) -> Tensor:
        given = inputs_of(kind, batch=3, length=9)
        graph = First(model, list(given)).eval()
        path = tmp_path / f"{type(model).__name__}.onnx"
        shapes = (tuple(dimensions(*item) for item in given.items()),)
        torch.onnx.export(graph, tuple(given.values()), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for batch, length in ((3, 9), (5, 14)):
            values = list(inputs_of(kind, batch=batch, length=length).values())
            names = [each.name for each in session.get_inputs()]
            (result,) = session.run(None, dict(zip(names, (value.numpy() for value in values), strict=True)))
            expected = graph(*values)
            # What is computed at padding is nobody's business.
            real = values[1].bool() if expected.ndim == 3 and len(values) == 2 else ...
            torch.testing.assert_close(torch.from_numpy(result)[real], expected[real], rtol=1e-5, atol=1e-5)
        return expected[real]

    with torch.no_grad():
        side_by_side("ONNX Runtime", "export of any batch and length", exported, *models.both(kind, head))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
def test_a_step_with_a_cache(kind: str, side_by_side: Callable[..., None]) -> None:
    """As transformers itself exports decoders: with a static cache inside the graph."""
    prompt = tiny.text(batch=1, length=6)["input_ids"]

    def exported(model: PreTrainedModel) -> Tensor:
        settings = {"cache_implementation": "static", "max_cache_len": 16, "batch_size": 1}
        model.generation_config = GenerationConfig(use_cache=True, cache_config=settings, **settings)
        module = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=16)
        program = module.export(input_ids=prompt[:, :1], cache_position=torch.arange(1)).module()
        steps = [program(input_ids=prompt[:, at : at + 1], cache_position=torch.tensor([at])) for at in range(6)]
        found = torch.cat(steps, dim=1)
        torch.testing.assert_close(found, model(prompt).logits, rtol=1e-4, atol=1e-4)
        return found

    with torch.no_grad():
        side_by_side("torch.export", "a step with a static cache", exported, *models.both(kind, AutoModelForCausalLM))
