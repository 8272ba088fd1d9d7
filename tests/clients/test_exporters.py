"""torch.export and ONNX: graphs of every family for every length and batch, equal in another runtime.

A step of decoding is one as well: the cache goes in and comes out as tensors.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.testing import assert_close
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForObjectDetection,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.cache_utils import Cache
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

import tiny
from qkv.modeling.recurrent.recurrent_cache import RecurrentCache

onnxruntime = pytest.importorskip("onnxruntime", reason="`make clients` installs it", exc_type=ImportError)
pytest.importorskip("onnxscript", reason="`make clients` installs it", exc_type=ImportError)

SPEECH, RECURRENT = "AudioEncoderForCTC-speech", "RecurrentForConditionalGeneration-rnnsearch"
PAIRS = ("PairForContactPrediction-esmfold", "PairForDistancePrediction-recycled")
HEADS: list[tuple[str, Any]] = [
    *((kind, AutoModelForCausalLM) for kind in ("gpt2", "llama", "mistral", "bloom")),
    ("bert", AutoModelForMaskedLM),
    ("bert", AutoModelForSequenceClassification),
    ("vit", AutoModelForImageClassification),
    ("t5", AutoModelForSeq2SeqLM),
    ("bart", AutoModelForSeq2SeqLM),
    ("clip", AutoModel),
    ("detr", AutoModelForObjectDetection),
    ("speech_to_text", AutoModelForSpeechSeq2Seq),
    ("whisper", AutoModelForSpeechSeq2Seq),
    *((name, None) for name in (SPEECH, RECURRENT, *PAIRS)),
]
TRANSLATING = ("t5", "bart", "speech_to_text", "whisper", RECURRENT)
BATCH = Dim("batch", min=2, max=64)
DIMENSIONS: dict[str, dict[int, Any]] = {
    **dict.fromkeys(("input_ids", "attention_mask"), {0: BATCH, 1: Dim("length", min=2, max=40)}),
    **dict.fromkeys(("decoder_input_ids", "decoder_attention_mask"), {0: BATCH, 1: Dim("target", min=2, max=40)}),
    **dict.fromkeys(("pixel_values", "pixel_mask"), {0: BATCH}),
}


def both(kind: str, head: Any) -> tuple[PreTrainedModel, PreTrainedModel | None]:
    """A model of ours with its stock model, or one of those that transformers does not have."""
    if head is None:
        return next(case for case in tiny.CASES if case.name == kind).build(), None
    return models.both(kind, head)


class Graph:
    """The ONNX graph of a module of tensors by position, exported to a file with some dimensions left open."""

    def __init__(
        self, module: nn.Module, given: Sequence[Tensor], path: Path, shapes: Sequence[dict[int, Any]]
    ) -> None:
        torch.onnx.export(
            module.eval(), tuple(given), path, dynamo=True, dynamic_shapes=(tuple(shapes),), verbose=False
        )
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def __call__(self, *values: Tensor) -> list[Tensor]:
        names = [each.name for each in self.session.get_inputs()]
        named = zip(names, (value.numpy() for value in values), strict=True)
        return [torch.from_numpy(each) for each in self.session.run(None, dict(named))]


class First(nn.Module):
    """The first output of a model, by position, as graphs have it."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> Tensor:
        inputs = dict(zip(self.names, values, strict=True))
        options = {"use_cache": False} if "input_ids" in inputs or "decoder_input_ids" in inputs else {}
        return self.model(**inputs, **options, return_dict=False)[0]


def inputs_of(kind: str, *, batch: int, length: int) -> dict[str, Tensor]:
    """Inputs of that size; texts and sounds are padded on the right."""
    text = tiny.text(batch=batch, length=length)
    pictures = tiny.images(batch=batch, size=(16, 16))
    if kind in ("vit", "detr"):
        mask = torch.ones(batch, 16, 16, dtype=torch.long)
        mask[1, :, 8:] = 0
        return pictures | ({"pixel_mask": mask} if kind == "detr" else {})
    if kind == "clip":
        last = text["attention_mask"].sum(-1, keepdim=True) - 1
        return {**text, **pictures, "input_ids": text["input_ids"].scatter(1, last, tiny.END)}
    sound = tiny.audio(length, batch=batch)
    window = torch.randn(batch, 6, 22, generator=torch.Generator().manual_seed(1))
    given = {"whisper": {"input_features": window}, "speech_to_text": sound, SPEECH: sound}.get(kind, text)
    target = {"decoder_input_ids": tiny.text(batch=batch, length=length - 2, seed=3)["input_ids"].clamp(min=4)}
    return given | (target if kind in TRANSLATING else {})


def dimensions(kind: str, name: str) -> dict[int, Any]:
    """What may be any: the batch, and lengths but those that a model or torch fixes."""
    if kind == RECURRENT:  # torch unrolls recurrent networks, stock ones too
        return {0: BATCH}
    if kind in PAIRS:
        return {0: BATCH, 1: Dim.AUTO}  # torch cannot compare L with L², which strides of pairs need in a range
    if kind in ("speech_to_text", SPEECH) and name in ("input_features", "attention_mask"):
        return {0: BATCH, 1: Dim.AUTO}  # what convolutions leave of a range, torch cannot follow
    return DIMENSIONS.get(name, {0: BATCH})


@pytest.mark.parametrize(("kind", "head"), HEADS, ids=lambda value: getattr(value, "__name__", value))
def test_onnx(kind: str, head: Any, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    fixed = kind == RECURRENT

    def exported(model: PreTrainedModel) -> Tensor:
        given = inputs_of(kind, batch=3, length=9)
        module = First(model, list(given)).eval()
        path = tmp_path / f"{type(model).__name__}.onnx"
        graph = Graph(module, list(given.values()), path, [dimensions(kind, name) for name in given])
        for batch, length in ((3, 9), (5, 9 if fixed else 14)):
            values = list(inputs_of(kind, batch=batch, length=length).values())
            (result,), expected = graph(*values), module(*values)
            # What is computed at padding is nobody's business.
            alone = expected.ndim == 3 and list(given)[1:] == ["attention_mask"]
            real = values[1][:, :: 4 if "input_features" in given else 1].bool() if alone else ...
            assert_close(result[real], expected[real], rtol=1e-5, atol=1e-5)
        return expected[real]

    what = f"export of any batch{'' if fixed else ' and length'}"
    with torch.no_grad():
        side_by_side("ONNX Runtime", what, exported, *both(kind, head))


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
        assert_close(found, model(prompt).logits, rtol=1e-4, atol=1e-4)
        return found

    with torch.no_grad():
        side_by_side("torch.export", "a step with a static cache", exported, *models.both(kind, AutoModelForCausalLM))


STEPPED = ("gpt2", "llama", "mistral", "bloom", "t5", "bart", "speech_to_text", RECURRENT)
TEXTS = tiny.text(batch=5, length=12, seed=3)["input_ids"].clamp(min=4)


def tensors_of(cache: Any) -> list[Tensor]:
    """All that a cache holds, layer by layer."""
    if isinstance(cache, EncoderDecoderCache):
        return [*tensors_of(cache.self_attention_cache), *tensors_of(cache.cross_attention_cache)]
    if isinstance(cache, RecurrentCache):
        return [cache.layers[0].keys, *(layer.values for layer in cache.layers)]
    return [kept for layer in cache.layers for kept in (layer.keys, layer.values)]


def cache_of(tensors: Sequence[Tensor], model: PreTrainedModel) -> Cache:
    """The cache that holds these."""
    if model.config.model_type == "qkv_recurrent":
        cache = RecurrentCache(len(tensors) - 1)
        for index, layer in enumerate(cache.layers):
            layer.lazy_initialization(None if index else tensors[0], tensors[1 + index])
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


@torch.no_grad()
def begun(model: PreTrainedModel, kind: str, batch: int, length: int, past: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """The mask of the source or the text, what a step reads besides a token, and what all tokens score."""
    texts = TEXTS[:batch]
    if not model.config.is_encoder_decoder:
        cache = model(texts[:, :past], use_cache=True, past_key_values=DynamicCache()).past_key_values
        return torch.ones(batch, past + 1, dtype=torch.long), tensors_of(cache), model(texts).logits
    source = {k: v for k, v in inputs_of(kind, batch=batch, length=length).items() if not k.startswith("decoder")}
    outputs = model(**source, decoder_input_ids=texts[:, :past], use_cache=True)
    kept = [outputs.encoder_last_hidden_state, *tensors_of(outputs.past_key_values)]
    return source["attention_mask"], kept, model(**source, decoder_input_ids=texts).logits


@pytest.mark.parametrize(
    ("kind", "head"),
    [each for each in HEADS if each[0] in STEPPED],
    ids=lambda value: getattr(value, "__name__", value),
)
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

    with torch.no_grad():
        side_by_side("ONNX Runtime", "a step of any batch and length with a cache", stepped, *both(kind, head))
