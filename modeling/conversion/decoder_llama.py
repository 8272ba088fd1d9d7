"""Conversion of Llama's descendants, as tables: StarCoder2, StableLM, Seed-OSS, Phi-3, Ministral, CWM, GLM and others.

In training, stock StableLM drops out no attention weights, and ours does.
"""

from dataclasses import replace

from .config import Codec, Value, Values, renames, translated
from .decoder import (
    COMMON,
    DROPOUT,
    LAYER_PATTERN,
    LLAMA,
    LLAMA_WORDS,
    PARTIAL_ROPE,
    QUERIES_KEYS_VALUES,
    SCORED_TOKENS,
    UNBIASED,
    WHOLE_ROPE,
    input_biases,
)
from .weights import ROWS

PLAIN = replace(LLAMA, inert="", assumed={}, heads=(*COMMON, SCORED_TOKENS))
# A window for all layers, where there is one.
WINDOW_OR_NONE = Codec(
    "sliding_window",
    lambda window, theirs: "sliding" if window else "full",
    lambda pattern, ours: ours["sliding_window"] if pattern == "sliding" else None,
)
STARCODER2 = replace(
    PLAIN,
    model_type="starcoder2",
    fields={
        **DROPOUT,
        **renames("norm_eps=norm_epsilon attention_bias=use_bias mlp_bias=use_bias"),
        **WHOLE_ROPE,
        "pattern": WINDOW_OR_NONE,
    },
    words={"position": "rope"},
    rows=ROWS["starcoder2"],
    assumed={"mlp_type": "default", "norm_type": "layer_norm"},
)
STABLELM = replace(
    PLAIN,
    model_type="stablelm",
    fields={
        **DROPOUT,
        **renames("norm_eps=layer_norm_eps residual_dropout=hidden_dropout"),
        **PARTIAL_ROPE,
        "attention_bias": input_biases("use_qkv_bias"),
        "query_key_norm": translated("qk_layernorm", {False: "none", True: "each_head"}),
        "parallel_residual": translated("use_parallel_residual", {False: False, True: "shared_norm"}),
    },
    words={"feed_forward": "glu", "position": "rope", "mlp_bias": False},
    rows=(*LLAMA.rows, *ROWS["norms_of_heads"]),
    assumed={"rotary_scaling_factor": 1.0},
)


def their_biases(biased: Value, theirs: Values) -> list[str]:
    """Name the projections with a bias: of the inputs, and of the output."""
    return QUERIES_KEYS_VALUES * biased + ["o_proj"] * theirs["attention_out_bias"]


def has_bias(biases: Value, name: str) -> bool:
    """Return whether a projection has a bias."""
    return bool(biases) if isinstance(biases, bool | None) else name in biases


SEED_OSS = replace(
    PLAIN,
    model_type="seed_oss",
    fields={
        **LLAMA.fields,
        "attention_bias": Codec("attention_bias", their_biases, lambda biases, _: has_bias(biases, "q_proj")),
        # Their second switch has no field of ours; it stands beside one that never changes.
        "position": Codec(
            "attention_out_bias", lambda *_: "rope", lambda _, ours: has_bias(ours["attention_bias"], "o_proj")
        ),
    },
    heads=LLAMA.heads,
)

PHI3 = replace(
    PLAIN,
    model_type="phi3",
    fields={
        **DROPOUT,
        **renames("norm_eps=rms_norm_eps residual_dropout=resid_pdrop"),
        **PARTIAL_ROPE,
        "pattern": WINDOW_OR_NONE,
        # Theirs says it twice; it stands beside a field that never changes.
        "position": Codec(
            "original_max_position_embeddings",
            lambda *_: "rope",
            lambda _, ours: (ours["rope_parameters"] or {}).get("original_max_position_embeddings", 4096),
        ),
    },
    words={**LLAMA_WORDS, **UNBIASED},
    rows=ROWS["phi3"],
    # Embeddings are never dropped out; the length is one of rotary parameters, too.
    inert="embd_pdrop original_max_position_embeddings",
    assumed={"attention_bias": False},
)

MINISTRAL = replace(
    PLAIN,
    model_type="ministral",
    fields={**LLAMA.fields, "pattern": LAYER_PATTERN},
    words={**LLAMA_WORDS, **UNBIASED},
    heads=LLAMA.heads,
)
CWM = replace(MINISTRAL, model_type="cwm", words={**LLAMA_WORDS, "attention_bias": False}, heads=COMMON[:2])

GLM = replace(
    PLAIN,
    model_type="glm",
    fields={**LLAMA.fields, **PARTIAL_ROPE, "attention_bias": input_biases("attention_bias")},
    words={**LLAMA_WORDS, "mlp_bias": False},
    rows=ROWS["glm"],
)
HELIUM = replace(
    PLAIN,
    model_type="helium",
    fields={**LLAMA.fields, "attention_bias": input_biases("attention_bias")},
    rows=ROWS["helium"],
)
ERNIE = replace(
    HELIUM,
    model_type="ernie4_5",
    fields={**LLAMA.fields, **renames("attention_bias=use_bias mlp_bias=use_bias")},
    heads=COMMON[:2],
)

DECODERS_LIKE_LLAMA = (STARCODER2, STABLELM, SEED_OSS, PHI3, MINISTRAL, CWM, GLM, HELIUM, ERNIE)
