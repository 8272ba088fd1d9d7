"""Conversion of models for long texts: Longformer, LED and BigBird, as tables.

Without a `global_attention_mask`, stock Longformer marks the first token to classify a text, as `num_global_tokens=1`
does here, also beside a mask. To answer questions and choose it looks for separators; there our heads ask for the mask.

In training, stock BigBird drops out parts of the embeddings before their norm, and ours after it.
"""

from dataclasses import replace

from ..modeling_encoder import (
    QkvEncoderForMultipleChoice,
    QkvEncoderForSequenceClassification,
    QkvEncoderForTokenClassification,
)
from ..modeling_encoder_decoder_heads import QkvEncoderDecoderForQuestionAnswering
from ..modeling_encoder_pretraining import QkvEncoderForMaskedLM, QkvEncoderForPreTraining
from .config import SYNONYMS, Codec, Head, Values, both, same
from .encoder import (
    ALWAYS_GELU,
    BERT,
    CLASSIFIER,
    CLASSIFIER_DROPOUT,
    MASKED_LM,
    POOLED,
    POOLED_CLASSIFIER,
    ROBERTA,
    ROBERTA_MASKED_LM,
    base,
    token_heads,
)
from .encoder_decoder import (
    BART,
    BART_FIELDS,
    HEADLESS,
    LEARNED,
    LOGITS_BIAS,
    ONE_TABLE,
    bart_stack,
    heads,
)


def our_window(widths: int | list[int], theirs: Values) -> int:
    """Count one side of their windows and the token, where all layers have the same."""
    different = sorted({widths} if isinstance(widths, int) else {*widths})
    if len(different) > 1:
        raise ValueError(
            f"attention_window={widths} differs between layers, which share one sliding_window in qkv; give all layers "
            f"{different[-1]}"
        )
    return different[0] // 2 + 1


# A window of theirs has two neighbours on either side: with one, stock code cuts its chunks to nothing and raises.
WINDOW = Codec("attention_window", our_window, lambda window, ours: 2 * max((window or 1) - 1, 2))
LOCAL_AND_GLOBAL = {"pattern": "sliding", "global_projections": True}

LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    fields={
        **ROBERTA.fields,
        **same("sep_token_id"),
        "sliding_window": WINDOW,
        "classifier_dropout": "hidden_dropout_prob",
    },
    words={**ROBERTA.words, **LOCAL_AND_GLOBAL},
    rows=(
        *ROBERTA.rows,
        (
            "layers.*.self_attn.global_projections.{q,k,v}_proj",
            "encoder.layer.*.attention.self.{query_global,key_global,value_global}",
        ),
    ),
    heads=(
        *base("LongformerModel"),
        *token_heads("Longformer"),
        Head(QkvEncoderForMultipleChoice, "LongformerForMultipleChoice", CLASSIFIER, POOLED),
        Head(QkvEncoderForMaskedLM, "LongformerForMaskedLM", ROBERTA_MASKED_LM, fields={"head_act": ALWAYS_GELU}),
        Head(
            QkvEncoderForSequenceClassification,
            "LongformerForSequenceClassification",
            POOLED_CLASSIFIER,
            {**POOLED, "num_global_tokens": 1},
            {"pooling_dropout": "hidden_dropout_prob"},
        ),
    ),
    prefixes=("model.", "longformer."),
    inert=ROBERTA.inert | {"onnx_export"},
    assumed={**ROBERTA.assumed, "attention_mode": "longformer", "ignore_attention_mask": False},
)

LED_ATTENTION = "encoder.layers.*.self_attn"
LED = replace(
    BART,
    model_type="led",
    fields={
        **{name: theirs for name, theirs in BART_FIELDS.items() if not name.endswith("scale_embedding")},
        **both(same("vocab_size")),
        "share_embeddings": "tie_word_embeddings",
        **{f"{side}.max_position_embeddings": f"max_{side}_position_embeddings" for side in ("encoder", "decoder")},
        "encoder.sliding_window": WINDOW,
    },
    words={
        **both({"norm_first": False, "embedding_norm": True}),
        **{f"encoder.{name}": word for name, word in LOCAL_AND_GLOBAL.items()},
    },
    rows=(
        (f"{LED_ATTENTION}.{{q,k,v}}_proj", f"{LED_ATTENTION}.longformer_self_attn.{{query,key,value}}"),
        (
            f"{LED_ATTENTION}.global_projections.{{q,k,v}}_proj",
            f"{LED_ATTENTION}.longformer_self_attn.{{query_global,key_global,value_global}}",
        ),
        (f"{LED_ATTENTION}.o_proj", f"{LED_ATTENTION}.output"),
        *bart_stack("encoder")[1:],
        *bart_stack("decoder"),
        *ONE_TABLE,
        *LEARNED,
    ),
    heads=(
        *heads("LED", "ForConditionalGeneration", LOGITS_BIAS),
        Head(QkvEncoderDecoderForQuestionAnswering, "LEDForQuestionAnswering", (("qa_outputs", "qa_outputs"),)),
    ),
    prefixes=("model.", "led."),
    inert=HEADLESS,
)


def full_attention(kind: str, theirs: Values) -> str:
    """Name full attention, to which stock BigBird itself turns for short texts."""
    if kind == "original_full":
        return "full"
    raise ValueError(
        f"attention_type={kind!r} of BigBird counts the first block 1 + num_random_blocks times in evaluation and "
        "draws blocks by numpy in training, which no pattern here does; set attention_type='original_full'"
    )


# It has weights beside these heads that nothing reads; on the way back they start anew.
UNREAD_POOLER = ("", "bert.pooler.{weight,bias}", "unread")
BIG_BIRD = replace(
    BERT,
    model_type="big_bird",
    fields={
        **BERT.fields,
        **same("sep_token_id"),
        "scale_embedding": "rescale_embeddings",
        "pattern": Codec("attention_type", full_attention, lambda pattern, ours: "original_full"),
        "attention_bias": Codec(
            "use_bias", lambda biased, theirs: biased or ["o_proj"], lambda biased, ours: biased is True
        ),
    },
    rows=(*(row for row in BERT.rows if row[0] != "pooler.dense"), ("pooler.dense", "pooler")),
    heads=(
        *base("BigBirdModel"),
        Head(QkvEncoderForTokenClassification, "BigBirdForTokenClassification", (*CLASSIFIER, UNREAD_POOLER)),
        Head(
            QkvEncoderForMultipleChoice,
            "BigBirdForMultipleChoice",
            CLASSIFIER,
            POOLED,
            {"classifier_dropout": "hidden_dropout_prob"},
            inert=frozenset({"classifier_dropout"}),
        ),
        Head(QkvEncoderForMaskedLM, "BigBirdForMaskedLM", (*MASKED_LM, UNREAD_POOLER)),
        Head(
            QkvEncoderForPreTraining,
            "BigBirdForPreTraining",
            (*MASKED_LM, ("seq_relationship", "cls.seq_relationship")),
            POOLED,
        ),
        Head(
            QkvEncoderForSequenceClassification,
            "BigBirdForSequenceClassification",
            (*POOLED_CLASSIFIER, UNREAD_POOLER),
            POOLED,
            {
                "pooling_dropout": CLASSIFIER_DROPOUT,
                "head_act": Codec(
                    "hidden_act",
                    read=lambda act, theirs: SYNONYMS.get(act, act),
                    write=lambda act, ours: ours["hidden_act"],
                ),
            },
        ),
    ),
    prefixes=("model.", "bert."),
    # Those of sparse attention.
    inert=BERT.inert | {"block_size", "num_random_blocks"},
)

LONG_TEXTS = (LONGFORMER, LED, BIG_BIRD)
