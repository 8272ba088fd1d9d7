"""Conversion of decoders with parallel branches or other activations, as tables: GPT-J, Phi, Falcon, Cohere and others.

In training, stock models drop out no attention weights where theirs has no field for it, and ours does.
"""

from dataclasses import replace

from .config import Codec, Head, Value, Values, default, renames, translated
from .decoder import (
    ANSWERS,
    COMMON,
    DROPOUT,
    GPT2,
    LAYER_PATTERN,
    LLAMA,
    MODEL,
    PARTIAL_ROPE,
    SCORED,
    SCORED_TOKENS,
    TOKENS,
    WHOLE_ROPE,
)
from .decoder_llama import PLAIN
from .decoder_normed import GEMMA, GEMMA_FIELDS, NARROW, NEMOTRON, ROTATED_WINDOWS
from .encoder_rotary import MODERNBERT
from .weights import ROWS

BIASED_HEAD = Head("ForCausalLM", (("lm_head", "lm_head"),))
SHARED_NORM = {"position": "rope", "parallel_residual": "shared_norm"}
HEAD_NORM = translated("qk_layernorm", {False: "none", True: "head"})


def our_turn(size: int, theirs: Values) -> Values:
    """Return the rotation of the first components of a head."""
    return {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": size / (theirs["n_embd"] // theirs["n_head"]),
    }


def their_turn(rope: Values | None, ours: Values) -> int:
    """Return the number of components that are rotated."""
    return round(ours["head_dim"] * (rope or {}).get("partial_rotary_factor", 1.0))


NAMES_OF_GPT = GPT2.fields.keys() - {"attention_multiplier", "classifier_dropout"}
GPTJ = replace(
    GPT2,
    model_type="gptj",
    fields={
        **{name: theirs for name, theirs in GPT2.fields.items() if name in NAMES_OF_GPT},
        "rope_parameters": Codec("rotary_dim", our_turn, their_turn),
    },
    words={**SHARED_NORM, "lm_head_bias": True, "attention_bias": False},
    rows=ROWS["gptj"],
    heads=(MODEL, BIASED_HEAD, SCORED, ANSWERS),
    inert=f"rotary scale_attn_weights {GPT2.inert}",
)
CODEGEN = replace(
    GPTJ,
    model_type="codegen",
    rows=ROWS["codegen"],
    heads=GPTJ.heads[:2],
    fields={**GPTJ.fields, "pad_token_id": "pad_token_id"},
)
PHI = replace(
    PLAIN,
    model_type="phi",
    fields={
        **DROPOUT,
        **PARTIAL_ROPE,
        **renames("norm_eps=layer_norm_eps residual_dropout=resid_pdrop embedding_dropout=embd_pdrop"),
        "query_key_norm": HEAD_NORM,
    },
    words={**SHARED_NORM, "lm_head_bias": True},
    rows=ROWS["phi"],
    heads=(MODEL, BIASED_HEAD, SCORED, SCORED_TOKENS),
)
FALCON = replace(
    PLAIN,
    model_type="falcon",
    fields={
        **PARTIAL_ROPE,
        "classifier_dropout": default("classifier_dropout", "hidden_dropout"),
        "parallel_residual": translated("parallel_attn", {True: "shared_norm", False: False}),
        **renames("norm_eps=layer_norm_epsilon intermediate_size=ffn_hidden_size residual_dropout=hidden_dropout"),
        **renames("hidden_act=activation attention_bias=bias mlp_bias=bias"),
        "num_key_value_heads": Codec("multi_query", lambda one, _: 1 if one else None, lambda heads, _: heads == 1),
    },
    words={"position": "rope"},
    rows=ROWS["falcon"],
    heads=(*COMMON, TOKENS, ANSWERS),
    prefix="transformer.",
    # Whatever it says without the new architecture; a head for all queries is one.
    inert="num_kv_heads num_ln_in_parallel_attn",
    assumed={"apply_residual_connection_post_layernorm": False, "ff_factor": 4},
)


def norms_of_branches(count: int | None, theirs: Values) -> Value:
    """Return how branches share norms: two norms, unless there is said to be one."""
    return "shared_norm" if count == 1 else True


# Of 40 billion parameters and of Falcon 2.
FALCON_NEW = replace(
    FALCON,
    fields={
        **FALCON.fields,
        "num_key_value_heads": "num_kv_heads",
        "parallel_residual": Codec(
            "num_ln_in_parallel_attn", norms_of_branches, lambda word, _: 2 if word is True else 1
        ),
        "feed_forward": Codec("new_decoder_architecture", lambda *_: "mlp", lambda *_: True),
    },
    rows=ROWS["falcon_new"],
    inert="multi_query",
)
COHERE = replace(
    PLAIN,
    model_type="cohere",
    fields={
        **DROPOUT,
        **WHOLE_ROPE,
        "norm_eps": "layer_norm_eps",
        "query_key_norm": translated("use_qk_norm", {False: "none", True: "each_head"}),
    },
    words={**SHARED_NORM, "feed_forward": "glu", "mlp_bias": False, "norm_bias": False},
    rows=ROWS["cohere"],
    heads=COMMON[:2],
    inert="model_max_length",
)
COHERE2 = replace(
    COHERE,
    model_type="cohere2",
    fields={
        **{name: theirs for name, theirs in COHERE.fields.items() if name != "query_key_norm"},
        "head_dim": "head_dim",
        "pattern": LAYER_PATTERN,
        "position": ROTATED_WINDOWS,
    },
    words={name: word for name, word in COHERE.words.items() if name != "position"},
    rows=ROWS["cohere2"],
    inert="cache_implementation layer_switch order_of_interleaved_layers sliding_window_pattern use_embedding_sharing",
    assumed={"position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_gated_activation": True}
    | {"use_parallel_block": True, "use_parallel_embedding": True},
)
PERSIMMON = replace(
    PLAIN,
    model_type="persimmon",
    fields={
        "classifier_dropout": default("classifier_dropout", "hidden_dropout"),
        **PARTIAL_ROPE,
        **renames("norm_eps=layer_norm_eps residual_dropout=hidden_dropout"),
        "query_key_norm": HEAD_NORM,
    },
    words={"position": "rope"},
    rows=ROWS["persimmon"],
)
NANOCHAT = replace(
    PLAIN,
    model_type="nanochat",
    fields=NARROW,
    words={"norm": "rms", "norm_gain": "none", "position": "rope", "mlp_bias": False}
    | {"embedding_norm": True, "query_key_norm": "head_after_rotation"},
    rows=ROWS["nanochat"],
    heads=COMMON[:2],
)
ARCEE = replace(
    NEMOTRON, model_type="arcee", fields=LLAMA.fields, words={"norm": "rms", "position": "rope"}, heads=LLAMA.heads
)
JAIS2 = replace(
    ARCEE,
    model_type="jais2",
    fields={**LLAMA.fields, "norm_eps": "layer_norm_eps"},
    words={"position": "rope"},
    heads=COMMON[:2],
)
APERTUS = replace(
    PLAIN,
    model_type="apertus",
    fields=NARROW,
    words={"norm": "rms", "position": "rope", "mlp_bias": False, "query_key_norm": "head"},
    rows=ROWS["apertus"],
    heads=(*COMMON[:2], SCORED_TOKENS),
    assumed={"mlp_bias": False, "post_norm": False, "qk_norm": True},
)
GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    fields=GEMMA_FIELDS,
    words={**GEMMA.words, "norm_position": "sandwich"},
    rows=ROWS["gemma2"],
    inert="cache_implementation hidden_act",
)
VAULT_GEMMA = replace(GEMMA2, model_type="vaultgemma", words=GEMMA.words, rows=ROWS["vaultgemma"], heads=COMMON[:2])
ETTIN = replace(
    PLAIN,
    model_type="modernbert-decoder",
    fields={
        **{name: theirs for name, theirs in MODERNBERT.fields.items() if name not in ("pooling", "cls_token_id")},
        # Theirs counts the tokens on one side where it reads, and both where it is saved.
        "sliding_window": Codec("local_attention", lambda width, _: width // 2, lambda window, _: 2 * (window or 1)),
    },
    words={"position": "rope", "feed_forward": "glu", "embedding_norm": "instead", "lm_head_transform": True},
    rows=ROWS["ettin"],
    heads=(MODEL, Head("ForCausalLM", ROWS["ettin_words"])),
    free="classifier_dropout",
    inert=f"{MODERNBERT.inert} cls_token_id sep_token_id classifier_dropout sliding_window classifier_pooling "
    "global_rope_theta local_rope_theta sparse_prediction sparse_pred_ignore_index reference_compile",
    assumed={"causal_mask": True, "is_causal": True, "position_embedding_type": "sans_pos"},
)

PARALLEL_DECODERS = (
    *(GPTJ, CODEGEN, PHI, FALCON, FALCON_NEW, COHERE, COHERE2),
    *(PERSIMMON, NANOCHAT, ARCEE, JAIS2, APERTUS, GEMMA2, VAULT_GEMMA, ETTIN),
)
