"""Conversion of text encoders that are Llamas or Gemmas reading both ways, as tables: EuroBERT, ESM-C, EmbeddingGemma.

Stock ESM-C has no bias in the last norm and in those of queries and keys, where ours has one of zeros. Stock
EuroBERT drops out no part of its classifier's input.
"""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from .config import Architecture, Codec, Head, renames, translated
from .decoder import GEMMA3, LLAMA_WORDS, WHOLE_ROPE
from .encoder import CLASSIFIER, MODEL, POOLING, TEXTS
from .encoder_rotary import BOTH_SIDES
from .weights import ROWS

EUROBERT = Architecture(
    "eurobert",
    QkvEncoderConfig,
    {**renames("norm_eps=rms_norm_eps"), **WHOLE_ROPE},
    {**LLAMA_WORDS, "type_vocab_size": 0, "lm_head_transform": False},
    ROWS["llama"],
    (
        replace(MODEL, free=f"{POOLING} lm_head_bias", inert="classifier_pooling"),
        Head(
            "ForMaskedLM",
            (("lm_head.decoder", "lm_head"),),
            fields={"lm_head_bias": "mlp_bias"},
            free=POOLING,
            inert="classifier_pooling",
        ),
        Head(
            "ForSequenceClassification",
            (("model.pooler.dense", "dense"), *CLASSIFIER),
            {"head_act": "gelu"},
            {"pooling": translated("classifier_pooling", {"bos": "dense"})},
            free="lm_head_bias",
        ),
        Head("ForTokenClassification", CLASSIFIER, free=f"{POOLING} lm_head_bias", inert="classifier_pooling"),
    ),
    prefix="model.",
    inert="pretraining_tp use_cache",
)
ESM_C = Architecture(
    "esmc",
    QkvEncoderConfig,
    {
        **WHOLE_ROPE,
        "residual_multiplier": Codec(
            "num_hidden_layers", lambda count, _: (36 / count) ** 0.5, lambda _, ours: ours["num_hidden_layers"]
        ),
    },
    {"position": "rope", "feed_forward": "glu", "query_key_norm": "width", "type_vocab_size": 0, "norm_eps": 1e-5}
    | {"head_act": "gelu"},
    ROWS["esmc"],
    (
        replace(MODEL, free=POOLING),
        Head("ForMaskedLM", ROWS["esmc_words"], free=POOLING),
        replace(
            TEXTS, words={"pooling": "dense", "head_act": "tanh"}, fields={"pooling_dropout": "classifier_dropout"}
        ),
        Head("ForTokenClassification", (("classifier", "score"),), free=POOLING),
    ),
    prefix="esmc.",
)
EMBEDDING_GEMMA = replace(
    GEMMA3,
    family=QkvEncoderConfig,
    fields={name: theirs for name, theirs in GEMMA3.fields.items() if name != "classifier_dropout"}
    # An encoder reads both ways, and its config says so.
    | {"type_vocab_size": Codec("use_bidirectional_attention", lambda *_: 0, lambda *_: True)}
    | {"sliding_window": BOTH_SIDES},
    heads=(replace(MODEL, free=POOLING),),
    free="lm_head_bias lm_head_transform",
    inert=f"use_cache final_logit_softcapping {GEMMA3.inert}",
)

LLAMAS_READING_BOTH_WAYS = (EUROBERT, ESM_C, EMBEDDING_GEMMA)
