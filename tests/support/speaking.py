"""Tiny models of every generating family that have something to say."""

from typing import Any

import torch
from transformers import PreTrainedModel

import qkv.modeling as models
import tiny

DECODERS = ("gpt2", "llama", "mistral", "bloom", "dalle", "linear", "deltanet")
TRANSLATORS = ("transformer", "t5", "bart", "marian", "deep", "linear_marian")
# Those that have scores of single pairs.
SCORED = tuple(kind for kind in (*DECODERS, *TRANSLATORS) if kind not in ("linear", "linear_marian", "deltanet"))
RECURRENT = ("rnnsearch", "luong", "sutskever")


def build(kind: str, **fields: Any) -> PreTrainedModel:
    """A model with something to say: its next token depends on all that came before, clearly and unlike an echo."""
    fields = {"eos_token_id": None, "tie_word_embeddings": False, **fields}
    torch.manual_seed(0)
    if kind in tiny.KINDS["decoder"]:
        model = models.QkvDecoderForCausalLM(tiny.decoder(kind, **fields))
    elif kind in tiny.KINDS["encoder_decoder"]:
        model = models.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder(kind, **fields))
    elif kind in tiny.KINDS["speech_encoder_decoder"]:
        model = models.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder(kind, **fields))
    else:
        model = models.QkvRecurrentForConditionalGeneration(tiny.recurrent(kind, **fields))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tokens = "embed_tokens" in name or "lm_head.weight" in name
            parameter.add_((1.0 if tokens else 0.1) * torch.randn_like(parameter))
    return model.eval()
