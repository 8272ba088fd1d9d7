"""Weights of few bits by torchao and bitsandbytes, as users of transformers ask for them: as of stock models, and saved."""

import copy
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
    BitsAndBytesConfig,
    PreTrainedModel,
    TorchAoConfig,
)

quantization = pytest.importorskip("torchao.quantization", reason="`make clients` installs it", exc_type=ImportError)
pytest.importorskip("bitsandbytes", reason="`make clients` installs it", exc_type=ImportError)
HEADS = {"llama": AutoModelForCausalLM, "bert": AutoModelForMaskedLM, "bart": AutoModelForSeq2SeqLM}
BY_GROUPS = quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(16))
WEIGHTS = {
    "torchao, int8": TorchAoConfig(quantization.Int8WeightOnlyConfig()),
    "torchao, int4": TorchAoConfig(BY_GROUPS),
    "bitsandbytes, int8": BitsAndBytesConfig(load_in_8bit=True),
    "bitsandbytes, nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "bitsandbytes, fp4, scales of scales": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True
    ),
}
# Blocks of 64 weights, in which bitsandbytes stores them, have to fill the rows.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
SIZES = {"llama": WIDE, "bert": WIDE, "bart": {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}}
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
    program, _, what = weights.partition(", ")

    def quantize(model: PreTrainedModel) -> tuple[Tensor, Tensor | None]:
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        settings = copy.deepcopy(WEIGHTS[weights])
        quantized = auto.from_pretrained(folder, quantization_config=settings, dtype=torch.float32)
        assert type(quantized) is type(model) and (logits(quantized) - logits(model)).abs().max() > 1e-5
        quantized.save_pretrained(folder / "again")
        again = auto.from_pretrained(folder / "again")
        assert torch.equal(logits(again), logits(quantized))
        text = generated(quantized) if model.can_generate() else None
        assert text is None or torch.equal(generated(again), text)
        return logits(quantized), text

    side_by_side(program, f"{what} weights, saved and loaded", quantize, *models.both(kind, auto, **SIZES[kind]))
