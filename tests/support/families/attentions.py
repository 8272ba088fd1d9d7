"""Tiny models of every family, ours and transformers', and the attention weights that they return eagerly."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

import qkv
import tiny
from tiny import jitter

CLOSE = 1e-5
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 61, "max_position_embeddings": 48}
DECODER = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
ENDS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
PAIRS = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
HALVES = {"text": "text_model_output.attentions", "image": "vision_model_output.attentions"}
ENCODER, DECODED, CROSS = {"encoder": "attentions"}, {"decoder": "attentions"}, {"cross": "cross_attentions"}
Case = tuple[Callable[[], Any], Callable[[], dict[str, Any]], dict[str, str]]


def no_cache(inputs: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    return lambda: {**inputs(), "use_cache": False}


def own(class_name: str, make: Callable[..., Any], *kind: str) -> Callable[[], Any]:
    """A model of ours with a tiny config of a kind."""
    return lambda: getattr(qkv, class_name)(make(*kind))


def stock(name: str, config: str, **fields: Any) -> Any:
    return getattr(transformers, name)(getattr(transformers, config)(**copy.deepcopy(fields)))


def theirs(name: str, config: str, **fields: Any) -> Callable[[], Any]:
    return lambda: stock(name, config, **fields)


CAUSAL, TRANSLATOR = "QkvDecoderForCausalLM", "QkvEncoderDecoderModel"
RECURRENT = "QkvRecurrentForConditionalGeneration"
# Of each family: the model, its inputs, and the name of each stack's weights in the outputs.
OURS: dict[str, Case] = {
    "bert": (own("QkvEncoderForMaskedLM", tiny.encoder), tiny.text, ENCODER),
    "t5 encoder": (own("QkvEncoderModel", tiny.encoder, "relative"), tiny.text, ENCODER),
    "local": (own("QkvEncoderModel", tiny.encoder, "local"), tiny.text, ENCODER),
    "modernbert": (own("QkvEncoderForMaskedLM", tiny.encoder, "modernbert"), tiny.text, ENCODER),
    "first tokens": (own("QkvEncoderForSequenceClassification", tiny.encoder), tiny.text, ENCODER),
    "vit": (own("QkvImageEncoderForImageClassification", tiny.image_encoder), tiny.images, ENCODER),
    "gpt2": (own(CAUSAL, tiny.decoder), tiny.text, DECODED),
    **{
        kind: (own(CAUSAL, tiny.decoder, kind), tiny.text, DECODED)
        for kind in ("llama", "mistral", "bloom", "sparse", "neox")
    },
    "linear": (own(CAUSAL, tiny.decoder, "linear"), no_cache(tiny.text), DECODED),
    "transformer": (
        own("QkvEncoderDecoderForConditionalGeneration", tiny.encoder_decoder),
        no_cache(tiny.pairs),
        PAIRS,
    ),
    "t5": (own(TRANSLATOR, tiny.encoder_decoder, "t5"), no_cache(tiny.pairs), PAIRS),
    "linear marian": (own(TRANSLATOR, tiny.encoder_decoder, "linear_marian"), no_cache(tiny.pairs), PAIRS),
    "speech": (
        own("QkvSpeechEncoderDecoderForSpeechSeq2Seq", tiny.speech_encoder_decoder),
        no_cache(tiny.audio_with_targets),
        PAIRS,
    ),
    "ctc": (own("QkvAudioEncoderForCTC", tiny.audio_encoder), tiny.audio, ENCODER),
    "clip": (own("QkvDualEncoderModel", tiny.dual_encoder), tiny.captions, HALVES),
    "detr": (own("QkvDetectionForObjectDetection", tiny.detector), tiny.padded_images, PAIRS),
    "pairs": (own("QkvPairForMaskedLM", tiny.pair, "esmfold"), tiny.text, ENCODER),
    "rnnsearch": (own(RECURRENT, tiny.recurrent), tiny.pairs, CROSS),
    "luong": (own(RECURRENT, tiny.recurrent, "luong"), tiny.pairs, CROSS),
}
IMAGE = {**SIZES, "image_size": 16, "patch_size": 4}
BACKBONE = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}
DETR = {**DECODER, **WIDTHS, "num_queries": 5, "num_labels": 3, "backbone_config": BACKBONE}
DETR |= {"use_timm_backbone": False, "use_pretrained_backbone": False}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 61}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 61, "n_positions": 48}
GROUPED = {**SIZES, **WORDS, "num_key_value_heads": 2}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 61, **ENDS}
WHISPER = {**DECODER, **WIDTHS, **ENDS, "vocab_size": 61, "num_mel_bins": 6, "max_source_positions": 10}
CLIP = {"text_config": {**SIZES, **WORDS, **ENDS}, "vision_config": IMAGE, "projection_dim": 20}
# Like eager attention alone: scores that are bounded, and a score that no key has.
EAGER = {**GROUPED, "head_dim": 8, "attn_implementation": "eager"}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
STOCK: dict[str, Case] = {
    "bert": (theirs("BertModel", "BertConfig", **SIZES, **WORDS), tiny.text, ENCODER),
    "distilbert": (theirs("DistilBertModel", "DistilBertConfig", **DISTILBERT), tiny.text, ENCODER),
    "modernbert": (
        theirs("ModernBertModel", "ModernBertConfig", **SIZES, **WORDS, **ENDS, local_attention=4),
        tiny.text,
        ENCODER,
    ),
    "gpt2": (theirs("GPT2LMHeadModel", "GPT2Config", **GPT2), tiny.text, DECODED),
    "llama": (theirs("LlamaForCausalLM", "LlamaConfig", **GROUPED), tiny.text, DECODED),
    "mistral": (theirs("MistralModel", "MistralConfig", **GROUPED, sliding_window=4), tiny.text, DECODED),
    "t5": (theirs("T5Model", "T5Config", **T5), no_cache(tiny.pairs), PAIRS),
    "bart": (theirs("BartModel", "BartConfig", **DECODER, **WIDTHS, **WORDS, **ENDS), no_cache(tiny.pairs), PAIRS),
    "vit": (theirs("ViTModel", "ViTConfig", **IMAGE), lambda: tiny.images(size=(16, 16)), ENCODER),
    "clip": (
        theirs("CLIPModel", "CLIPConfig", **CLIP),
        lambda: {**tiny.sentences(), **tiny.images(size=(16, 16))},
        HALVES,
    ),
    "detr": (theirs("DetrForObjectDetection", "DetrConfig", **DETR), tiny.padded_images, PAIRS),
    "whisper": (
        theirs("WhisperModel", "WhisperConfig", **WHISPER),
        no_cache(lambda: {"input_features": torch.randn(2, 6, 20), "decoder_input_ids": tiny.text()["input_ids"]}),
        PAIRS,
    ),
    "gemma2": (theirs("Gemma2ForCausalLM", "Gemma2Config", **EAGER, attn_logit_softcapping=2.0), tiny.text, DECODED),
    "gpt-oss": (theirs("GptOssForCausalLM", "GptOssConfig", **EAGER, **EXPERTS), tiny.text, DECODED),
}
FAMILIES = {f"qkv {name}": row for name, row in OURS.items()} | {f"stock {name}": row for name, row in STOCK.items()}


def built(name: str) -> tuple[Any, dict[str, Any], dict[str, str]]:
    make, inputs, names = FAMILIES[name]
    torch.manual_seed(0)
    return jitter(make()).eval(), inputs(), names


@torch.no_grad()
def eager(model: Any, inputs: dict[str, Any], names: dict[str, str]) -> dict[str, list[Tensor]]:
    """The weights of each layer by the stack's name, from the model itself."""
    model = copy.deepcopy(model)
    if model._supports_sdpa:
        model.set_attn_implementation("eager")
    outputs = model(**inputs, output_attentions=True)
    weights: dict[str, Any] = {}
    for stack, name in names.items():
        weights[stack] = outputs
        for part in name.split("."):
            weights[stack] = weights[stack][part]
    return weights


def real_queries(stack: str, inputs: dict[str, Any], weights: Tensor) -> Tensor:
    """Ones at the queries that are no padding, whose weights nobody reads: (B, 1, T, 1)."""
    decoded = stack in ("decoder", "cross") and "decoder_input_ids" in inputs
    name = "decoder_attention_mask" if decoded else "attention_mask"
    mask = None if stack == "image" else inputs.get(name)
    if mask is not None and mask.shape[1] != weights.shape[2] == weights.shape[3] and stack == "encoder":
        return (weights.amax((1, 2)) > 0)[:, None, :, None]  # convolutions made fewer frames of sound
    if mask is None or mask.shape[1] != weights.shape[2]:
        return torch.ones(1, 1, weights.shape[2], 1)
    return mask[:, None, :, None]
