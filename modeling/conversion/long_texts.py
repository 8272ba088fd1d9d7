"""Conversion of models for long texts: Longformer, LED and BigBird, as tables.

Without a `global_attention_mask`, stock Longformer marks the first token to classify a text, as `num_global_tokens=1`
does here, also beside a mask. To answer questions and choose it looks for separators; there our heads ask for the mask.

In training, stock BigBird drops out parts of the embeddings before their norm, and ours after it.
"""

from dataclasses import replace

from .config import Codec, Values, both, output_bias, renames
from .encoder import (
    ANSWERS,
    BERT,
    BERT_ROWS,
    CHOICES,
    CHOICES_OF_LAYERS,
    LAYER_DROPOUT,
    MASKED_LM,
    MODELS,
    POOLED,
    PRETRAINING,
    ROBERTA,
    TEXTS,
    TOKENS,
    WORDS,
)
from .encoder_decoder import BART, BART_FIELDS, BIASED, HEADLESS, LEARNED, MODEL, ONE_TABLE, STACKS


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
    name="Longformer",
    fields={**ROBERTA.fields, **renames("sep_token_id"), "sliding_window": WINDOW, **LAYER_DROPOUT},
    words={**ROBERTA.words, **LOCAL_AND_GLOBAL},
    rows=(
        *ROBERTA.rows,
        (
            "layers.*.self_attn.global_projections.{q,k,v}_proj",
            "encoder.layer.*.attention.self.{query,key,value}_global",
        ),
    ),
    heads=(
        *(*MODELS, TOKENS, ANSWERS, CHOICES, WORDS),
        replace(
            TEXTS,
            words={**POOLED, "num_global_tokens": 1},
            fields={"pooling_dropout": "hidden_dropout_prob"},
        ),
    ),
    prefixes=("model.", "longformer."),
    inert=f"{ROBERTA.inert} onnx_export",
    assumed={**ROBERTA.assumed, "attention_mode": "longformer", "ignore_attention_mask": False},
)

LED_ATTENTION = "encoder.layers.*.self_attn"
LED_PROJECTIONS = f"{LED_ATTENTION}.longformer_self_attn."
LED = replace(
    BART,
    model_type="led",
    name="LED",
    fields={
        **{name: theirs for name, theirs in BART_FIELDS.items() if not name.endswith("scale_embedding")},
        **both(renames("vocab_size max_position_embeddings=max_*_position_embeddings")),
        "share_embeddings": "tie_word_embeddings",
        "encoder.sliding_window": WINDOW,
    },
    words={
        **both({"norm_first": False, "embedding_norm": True}),
        **{f"encoder.{name}": word for name, word in LOCAL_AND_GLOBAL.items()},
    },
    rows=(
        (f"{LED_ATTENTION}.{{q,k,v}}_proj", f"{LED_PROJECTIONS}{{query,key,value}}"),
        (f"{LED_ATTENTION}.global_projections.{{q,k,v}}_proj", f"{LED_PROJECTIONS}{{query,key,value}}_global"),
        (f"{LED_ATTENTION}.o_proj", f"{LED_ATTENTION}.output"),
        *(*STACKS, *ONE_TABLE, *LEARNED),
    ),
    heads=(MODEL, BIASED, ANSWERS),
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
    name="BigBird",
    fields={
        **BERT.fields,
        **renames("sep_token_id scale_embedding=rescale_embeddings"),
        "pattern": Codec("attention_type", full_attention, lambda pattern, ours: "original_full"),
        "attention_bias": output_bias("use_bias"),
    },
    rows=(*BERT_ROWS, ("pooler.dense", "pooler")),
    heads=(
        *(*MODELS, CHOICES_OF_LAYERS, PRETRAINING),
        replace(TOKENS, rows=(*TOKENS.rows, UNREAD_POOLER)),
        replace(WORDS, rows=(*MASKED_LM, UNREAD_POOLER), fields={}),
        replace(
            TEXTS,
            rows=(*TEXTS.rows, UNREAD_POOLER),
            fields={**TEXTS.fields, "head_act": Codec("hidden_act", write=lambda act, ours: ours["hidden_act"])},
        ),
    ),
    # Fields of sparse attention.
    inert=f"{BERT.inert} block_size num_random_blocks",
)

LONG_TEXTS = (LONGFORMER, LED, BIG_BIRD)
