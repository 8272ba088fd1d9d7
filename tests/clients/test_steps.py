"""A step of decoding as an ONNX graph: the cache goes in and comes out as tensors, of any batch and length."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from exports import Graph
from torch import Tensor, nn
from torch.export import Dim
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    PreTrainedModel,
)
from transformers.cache_utils import Cache

import tiny
from qkv.modeling.recurrent.recurrent_stack import RecurrentCache

pytest.importorskip("onnxruntime", reason="`make clients` installs it", exc_type=ImportError)
pytest.importorskip("onnxscript", reason="`make clients` installs it", exc_type=ImportError)

RECURRENT = "RecurrentForConditionalGeneration-rnnsearch"
TEXTS = tiny.text(batch=5, length=12, seed=3)["input_ids"].clamp(min=4)
HEADS: list[tuple[str, Any]] = [
    *((kind, AutoModelForCausalLM) for kind in ("gpt2", "llama", "mistral", "bloom")),
    *((kind, AutoModelForSeq2SeqLM) for kind in ("t5", "bart")),
    ("speech_to_text", AutoModelForSpeechSeq2Seq),
    (RECURRENT, None),
]


def tensors_of(cache: Any) -> list[Tensor]:
    """All that a cache holds, layer by layer."""
    if isinstance(cache, EncoderDecoderCache):
        return [*tensors_of(cache.self_attention_cache), *tensors_of(cache.cross_attention_cache)]
    if isinstance(cache, RecurrentCache):
        return [cache.layers[0].values, *(layer.keys for layer in cache.layers)]
    return [kept for layer in cache.layers for kept in (layer.keys, layer.values)]


def cache_of(tensors: Sequence[Tensor], model: PreTrainedModel) -> Cache:
    """The cache that holds these."""
    if model.config.model_type == "qkv_recurrent":
        cache = RecurrentCache(len(tensors) - 1)
        for index, layer in enumerate(cache.layers):
            layer.store(tensors[1:2] + tensors[:1] if not index else tensors[1 + index :][:1], 1)
        return cache
    pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
    if not model.config.is_encoder_decoder:
        return DynamicCache(pairs)
    half = len(pairs) // 2
    return EncoderDecoderCache(DynamicCache(pairs[:half]), DynamicCache(pairs[half:]))


class Step(nn.Module):
    """Score a token after those in a cache, and give back the cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        token, mask, *rest = values
        given: dict[str, Any] = {"attention_mask": mask}
        if self.model.config.is_encoder_decoder:
            given |= {"decoder_input_ids": token, "encoder_outputs": (rest[0],)}
            rest = rest[1:]
        else:
            given["input_ids"] = token
        outputs = self.model(**given, past_key_values=cache_of(rest, self.model), use_cache=True)
        return outputs.logits, *tensors_of(outputs.past_key_values)


def source_of(kind: str, batch: int, length: int) -> dict[str, Tensor]:
    if kind == "speech_to_text":
        return tiny.audio(length, batch=batch)
    return tiny.text(batch=batch, length=length)


@torch.no_grad()
def begun(model: PreTrainedModel, kind: str, batch: int, length: int, past: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """The mask of the source or the text, what a step reads besides a token, and what all tokens score."""
    texts = TEXTS[:batch]
    if not model.config.is_encoder_decoder:
        cache = model(texts[:, :past], use_cache=True, past_key_values=DynamicCache()).past_key_values
        return torch.ones(batch, past + 1, dtype=torch.long), tensors_of(cache), model(texts).logits
    source = source_of(kind, batch, length)
    outputs = model(**source, decoder_input_ids=texts[:, :past], use_cache=True)
    kept = [outputs.encoder_last_hidden_state, *tensors_of(outputs.past_key_values)]
    return source["attention_mask"], kept, model(**source, decoder_input_ids=texts).logits


@pytest.mark.parametrize(("kind", "head"), HEADS, ids=lambda value: getattr(value, "__name__", value))
def test_a_step_of_any_batch_and_length(
    kind: str, head: Any, tmp_path: Path, side_by_side: Callable[..., None]
) -> None:
    def stepped(model: PreTrainedModel) -> Tensor:
        mask, kept, _ = begun(model, kind, 3, 7, 5)
        lengths = [{0: Dim.AUTO, 1: Dim.AUTO}, *({0: Dim.AUTO, each.ndim - 2: Dim.AUTO} for each in kept)]
        graph = Graph(
            Step(model),
            (TEXTS[:3, 5:6], mask, *kept),
            tmp_path / f"{type(model).__name__}.onnx",
            [{0: Dim.AUTO}, *lengths],
        )
        mask, kept, expected = begun(model, kind, 5, 9, 7)
        for at in range(7, 12):
            scores, *held = graph(TEXTS[:, at : at + 1], mask, *kept)
            assert_close(scores[:, 0], expected[:, at], rtol=1e-5, atol=1e-5)
            kept = [*kept[: len(kept) - len(held)], *held]
            mask = mask if model.config.is_encoder_decoder else torch.ones(5, at + 2, dtype=torch.long)
        return scores

    both: Any = (
        models.both(kind, head) if head else (next(case for case in tiny.CASES if case.name == RECURRENT).build(), None)
    )
    with torch.no_grad():
        side_by_side("ONNX Runtime", "a step of any batch and length with a cache", stepped, *both)
