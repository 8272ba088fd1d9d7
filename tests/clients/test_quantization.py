"""Weights of few bits through torchao, as users of transformers ask for them: what stock models give, saved and loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    TorchAoConfig,
)

quantization = pytest.importorskip("torchao.quantization", reason="`make clients` installs it", exc_type=ImportError)
HEADS = {"llama": AutoModelForCausalLM, "bert": AutoModelForMaskedLM, "bart": AutoModelForSeq2SeqLM}
WEIGHTS = {
    "int8": quantization.Int8WeightOnlyConfig(),
    "int4": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(16)),
}
IDS = torch.arange(10, 34).view(3, 8)


@torch.no_grad()
def logits(model: PreTrainedModel) -> Tensor:
    given: dict[str, Any] = {"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}
    return model(input_ids=IDS, **given).logits


def generated(model: PreTrainedModel) -> Tensor:
    return model.generate(IDS, max_new_tokens=6, min_new_tokens=6, do_sample=False, num_beams=1, pad_token_id=1)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_of_few_bits(kind: str, weights: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    auto: Any = HEADS[kind]

    def quantize(model: PreTrainedModel) -> tuple[Tensor, Tensor | None]:
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        settings = TorchAoConfig(WEIGHTS[weights])
        quantized = auto.from_pretrained(folder, quantization_config=settings, dtype=torch.float32)
        assert type(quantized) is type(model) and (logits(quantized) - logits(model)).abs().max() > 1e-5
        quantized.save_pretrained(folder / "again")
        again = auto.from_pretrained(folder / "again")
        assert torch.equal(logits(again), logits(quantized))
        text = generated(quantized) if model.can_generate() else None
        assert text is None or torch.equal(generated(again), text)
        return logits(quantized), text

    side_by_side("torchao", f"{weights} weights, saved and loaded", quantize, *models.both(kind, auto))
