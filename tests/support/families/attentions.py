"""Tiny models of every family, ours and transformers', and the attention weights that they return eagerly."""

import copy
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


def no_cache(**inputs: Any) -> dict[str, Any]:
    return {**inputs, "use_cache": False}


# Of each family: the model, its inputs, and the name of each stack's weights in the outputs.
OURS: dict[str, Any] = {
    "bert": (lambda: qkv.QkvEncoderForMaskedLM(tiny.encoder()), tiny.text, {"encoder": "attentions"}),
    "t5 encoder": (lambda: qkv.QkvEncoderModel(tiny.encoder("relative")), tiny.text, {"encoder": "attentions"}),
    "local": (lambda: qkv.QkvEncoderModel(tiny.encoder("local")), tiny.text, {"encoder": "attentions"}),
    "modernbert": (lambda: qkv.QkvEncoderForMaskedLM(tiny.encoder("modernbert")), tiny.text, {"encoder": "attentions"}),
    "first tokens": (
        lambda: qkv.QkvEncoderForSequenceClassification(tiny.encoder()),
        tiny.text,
        {"encoder": "attentions"},
    ),
    "vit": (
        lambda: qkv.QkvImageEncoderForImageClassification(tiny.image_encoder()),
        tiny.images,
        {"encoder": "attentions"},
    ),
    "gpt2": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder()), tiny.text, {"decoder": "attentions"}),
    "llama": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("llama")), tiny.text, {"decoder": "attentions"}),
    "mistral": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("mistral")), tiny.text, {"decoder": "attentions"}),
    "bloom": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("bloom")), tiny.text, {"decoder": "attentions"}),
    "sparse": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("sparse")), tiny.text, {"decoder": "attentions"}),
    "neox": (lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("neox")), tiny.text, {"decoder": "attentions"}),
    "linear": (
        lambda: qkv.QkvDecoderForCausalLM(tiny.decoder("linear")),
        lambda: no_cache(**tiny.text()),
        {"decoder": "attentions"},
    ),
    "transformer": (
        lambda: qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder()),
        lambda: no_cache(**tiny.pairs()),
        PAIRS,
    ),
    "t5": (lambda: qkv.QkvEncoderDecoderModel(tiny.encoder_decoder("t5")), lambda: no_cache(**tiny.pairs()), PAIRS),
    "linear marian": (
        lambda: qkv.QkvEncoderDecoderModel(tiny.encoder_decoder("linear_marian")),
        lambda: no_cache(**tiny.pairs()),
        PAIRS,
    ),
    "speech": (
        lambda: qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()),
        lambda: no_cache(**tiny.audio_with_targets()),
        PAIRS,
    ),
    "ctc": (lambda: qkv.QkvAudioEncoderForCTC(tiny.audio_encoder()), tiny.audio, {"encoder": "attentions"}),
    "clip": (
        lambda: qkv.QkvDualEncoderModel(tiny.dual_encoder()),
        tiny.captions,
        {"text": "text_model_output.attentions", "image": "vision_model_output.attentions"},
    ),
    "detr": (lambda: qkv.QkvDetectionForObjectDetection(tiny.detector()), tiny.padded_images, PAIRS),
    "pairs": (lambda: qkv.QkvPairForMaskedLM(tiny.pair("esmfold")), tiny.text, {"encoder": "attentions"}),
    "rnnsearch": (
        lambda: qkv.QkvRecurrentForConditionalGeneration(tiny.recurrent()),
        tiny.pairs,
        {"cross": "cross_attentions"},
    ),
    "luong": (
        lambda: qkv.QkvRecurrentForConditionalGeneration(tiny.recurrent("luong")),
        tiny.pairs,
        {"cross": "cross_attentions"},
    ),
}


def stock(name: str, config: str, **fields: Any) -> Any:
    return getattr(transformers, name)(getattr(transformers, config)(**fields))


def clip() -> Any:
    text = {**SIZES, **WORDS, **ENDS}
    image = {**SIZES, "image_size": 16, "patch_size": 4}
    return stock("CLIPModel", "CLIPConfig", text_config=text, vision_config=image, projection_dim=20)


def detr() -> Any:
    backbone = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}
    fields = {**DECODER, **WIDTHS, "num_queries": 5, "num_labels": 3, "use_timm_backbone": False}
    return stock(
        "DetrForObjectDetection", "DetrConfig", **fields, backbone_config=backbone, use_pretrained_backbone=False
    )


STOCK: dict[str, Any] = {
    "bert": (lambda: stock("BertModel", "BertConfig", **SIZES, **WORDS), tiny.text, {"encoder": "attentions"}),
    "distilbert": (
        lambda: stock(
            "DistilBertModel", "DistilBertConfig", dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=61
        ),
        tiny.text,
        {"encoder": "attentions"},
    ),
    "modernbert": (
        lambda: stock("ModernBertModel", "ModernBertConfig", **SIZES, **WORDS, **ENDS, local_attention=4),
        tiny.text,
        {"encoder": "attentions"},
    ),
    "gpt2": (
        lambda: stock("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, vocab_size=61, n_positions=48),
        tiny.text,
        {"decoder": "attentions"},
    ),
    "llama": (
        lambda: stock("LlamaForCausalLM", "LlamaConfig", **SIZES, **WORDS, num_key_value_heads=2),
        tiny.text,
        {"decoder": "attentions"},
    ),
    "mistral": (
        lambda: stock("MistralModel", "MistralConfig", **SIZES, **WORDS, num_key_value_heads=2, sliding_window=4),
        tiny.text,
        {"decoder": "attentions"},
    ),
    "t5": (
        lambda: stock(
            "T5Model", "T5Config", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=61, **ENDS
        ),
        lambda: no_cache(**tiny.pairs()),
        PAIRS,
    ),
    "bart": (
        lambda: stock("BartModel", "BartConfig", **DECODER, **WIDTHS, **WORDS, **ENDS),
        lambda: no_cache(**tiny.pairs()),
        PAIRS,
    ),
    "vit": (
        lambda: stock("ViTModel", "ViTConfig", **SIZES, image_size=16, patch_size=4),
        lambda: tiny.images(size=(16, 16)),
        {"encoder": "attentions"},
    ),
    "clip": (
        clip,
        lambda: {**tiny.sentences(), **tiny.images(size=(16, 16))},
        {"text": "text_model_output.attentions", "image": "vision_model_output.attentions"},
    ),
    "detr": (detr, tiny.padded_images, PAIRS),
    "whisper": (
        lambda: stock(
            "WhisperModel",
            "WhisperConfig",
            **DECODER,
            **WIDTHS,
            **ENDS,
            vocab_size=61,
            num_mel_bins=6,
            max_source_positions=10,
        ),
        lambda: no_cache(input_features=torch.randn(2, 6, 20), decoder_input_ids=tiny.text()["input_ids"]),
        PAIRS,
    ),
}
# What is like eager attention alone: scores that are bounded, and a score that no key has.
STOCK["gemma2"] = (
    lambda: stock(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        **SIZES,
        **WORDS,
        num_key_value_heads=2,
        head_dim=8,
        attn_logit_softcapping=2.0,
        attn_implementation="eager",
    ),
    tiny.text,
    {"decoder": "attentions"},
)
STOCK["gpt-oss"] = (
    lambda: stock(
        "GptOssForCausalLM",
        "GptOssConfig",
        **SIZES,
        **WORDS,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        attn_implementation="eager",
    ),
    tiny.text,
    {"decoder": "attentions"},
)
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
