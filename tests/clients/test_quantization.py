"""Weights of few bits through torchao, as users of transformers ask for them: what stock models give, saved and loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BertConfig,
    LlamaConfig,
    PreTrainedModel,
    TorchAoConfig,
)

import qkv

quantization = pytest.importorskip("torchao.quantization", reason="`make clients` installs it", exc_type=ImportError)
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}
STOCK = {
    "llama": (AutoModelForCausalLM, LlamaConfig(vocab_size=300, num_key_value_heads=2, **SMALL)),
    "bert": (AutoModelForMaskedLM, BertConfig(vocab_size=300, **SMALL)),
    "bart": (
        AutoModelForSeq2SeqLM,
        BartConfig(
            vocab_size=300,
            d_model=64,
            **{f"{half}_{name}": value for half in ("encoder", "decoder") for name, value in LAYERS.items()},
        ),
    ),
}
WEIGHTS = {
    "int8": quantization.Int8WeightOnlyConfig(),
    "int4": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(32)),
}
IDS = torch.arange(10, 34).view(3, 8)


@torch.no_grad()
def logits(model: PreTrainedModel) -> torch.Tensor:
    given: dict[str, Any] = {"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}
    return model(input_ids=IDS, **given).logits


def generated(model: PreTrainedModel) -> torch.Tensor:
    return model.generate(IDS, max_new_tokens=6, min_new_tokens=6, do_sample=False, num_beams=1, pad_token_id=1)


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_quantized_weights_give_what_those_of_a_stock_model_give(kind: str, weights: str, tmp_path: Path) -> None:
    auto, config = STOCK[kind]
    torch.manual_seed(0)
    stock = auto.from_config(config).eval()
    ours = qkv.from_transformers(stock).eval()
    stock.save_pretrained(tmp_path / "stock")
    ours.save_pretrained(tmp_path / "ours")
    models = []
    for name in ("stock", "ours"):
        settings = TorchAoConfig(WEIGHTS[weights])
        models.append(auto.from_pretrained(tmp_path / name, quantization_config=settings, dtype=torch.float32))
    expected, actual = map(logits, models)
    assert type(models[1]) is type(ours)
    assert_close(actual, expected)
    assert (actual - logits(ours)).abs().max() > 1e-5
    models[1].save_pretrained(tmp_path / "again")
    again = auto.from_pretrained(tmp_path / "again")
    assert torch.equal(logits(again), actual)
    if kind != "bert":
        assert torch.equal(generated(models[1]), generated(models[0]))
        assert torch.equal(generated(again), generated(models[0]))
