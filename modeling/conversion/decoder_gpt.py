"""Conversion of decoders like GPT-2, as tables: GPT-1, GPT-Neo, GPTBigCode (SantaCoder), MPT, BioGPT and XGLM."""

from dataclasses import replace

from ...configuration.configuration_decoder import QkvDecoderConfig
from .config import Architecture, Codec, Values, default, renames, translated
from .decoder import (
    ANSWERS,
    COMMON,
    DROPOUT,
    GPT2,
    MODEL,
    PATTERNS,
    SCORED,
    TOKENS,
    our_pattern,
    their_layers,
)
from .weights import ROWS

# It has no norm after the last layer; its "gelu" is the approximation.
GPT1 = replace(
    GPT2,
    model_type="openai-gpt",
    fields={
        **renames("norm_eps=layer_norm_epsilon embedding_dropout=embd_pdrop attention_dropout=attn_pdrop"),
        "residual_dropout": "resid_pdrop",
        "hidden_act": translated("afn", {"gelu": "gelu_new", "swish": "silu", "silu": "silu", "relu": "relu"}),
    },
    words={"norm_first": False},
    rows=ROWS["gpt1"],
    heads=GPT2.heads[:3],
    # It decodes without a cache.
    free="use_cache",
    inert=f"n_special predict_special_tokens {GPT2.inert}",
)

KINDS = {"full_attention": "global", "sliding_attention": "local"}


def their_kinds(pattern: str | list[str], ours: Values) -> list[object]:
    """Name the kind of each layer, as a list of kinds that are repeated once."""
    return [[[KINDS[layer]], 1] for layer in their_layers(pattern, ours)]


GPT_NEO = replace(
    GPT2,
    model_type="gpt_neo",
    fields={
        **renames("hidden_act=activation_function norm_eps=layer_norm_epsilon sliding_window=window_size"),
        **renames("embedding_dropout=embed_dropout residual_dropout=resid_dropout"),
        "pattern": Codec(
            "attention_types",
            lambda _, theirs: our_pattern(
                [PATTERNS[layer] for kind in theirs["attention_layers"] for layer in KINDS if KINDS[layer] == kind],
                theirs,
            ),
            their_kinds,
        ),
    },
    words={"attention_multiplier": 1.0, "attention_bias": ["o_proj"]},
    rows=ROWS["gpt_neo"],
    heads=(*COMMON, TOKENS, ANSWERS),
    # It says the same as `attention_layers`.
    inert=f"attention_types {GPT2.inert}",
)
GPT_BIGCODE = replace(
    GPT2,
    model_type="gpt_bigcode",
    fields={
        **GPT2.fields,
        "num_key_value_heads": Codec(
            "multi_query", lambda one, theirs: 1 if one else theirs["n_head"], lambda heads, ours: heads == 1
        ),
    },
    rows=ROWS["gpt_bigcode"],
    heads=(*COMMON, TOKENS),
    # How single precision is kept in half, and how its first code ran.
    inert="attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner max_batch_size pad_key_length "
    f"max_sequence_length pre_allocate_kv_cache validate_runner_input {GPT2.inert}",
)

# Theirs is a whole number: 0 or nothing.
WHOLE = Codec("attn_config.attn_pdrop", write=lambda rate, ours: int(rate))
MPT = Architecture(
    "mpt",
    QkvDecoderConfig,
    {
        **DROPOUT,
        **renames("max_position_embeddings=max_seq_len norm_eps=layer_norm_epsilon"),
        **{"attention_multiplier": "attn_config.softmax_scale", "residual_dropout": WHOLE, "attention_dropout": WHOLE},
    },
    {"position": "alibi", "attention_bias": False, "mlp_bias": False, "norm_bias": False},
    ROWS["mpt"],
    (*COMMON, TOKENS, ANSWERS),
    prefix="transformer.",
    # Stock code reads none of them.
    inert="expansion_ratio resid_pdrop emb_pdrop learned_pos_emb init_device logit_scale no_bias embedding_fraction "
    "norm_type attn_impl init_config tokenizer_name verbose",
)
BIOGPT = Architecture(
    "biogpt",
    QkvDecoderConfig,
    {
        **renames("embedding_dropout=hidden_dropout_prob residual_dropout=hidden_dropout_prob"),
        "attention_dropout": "attention_probs_dropout_prob",
        "classifier_dropout": default("classifier_dropout", "hidden_dropout_prob"),
    },
    {"position_offset": 2, "norm_eps": 1e-5},
    (("{embed_tokens,position.table,norm}", "{embed_tokens,embed_positions,layer_norm}"), *ROWS["fairseq_layers"]),
    (MODEL, replace(COMMON[1], rows=(("lm_head.weight", "output_projection.weight"),)), SCORED, TOKENS),
    prefix="biogpt.",
    # Its norms have PyTorch's number.
    inert="layer_norm_eps",
)


def check_padding(pad: int | None, theirs: Values) -> int | None:
    """Return the padding id; ValueError where stock XGLM blanks the position that has its number."""
    if pad is not None and pad > 1:
        raise ValueError(f"pad_token_id={pad} blanks a position of stock XGLM's table; set it to 0, 1 or None")
    return pad


XGLM = Architecture(
    "xglm",
    QkvDecoderConfig,
    {
        **renames("intermediate_size=ffn_dim hidden_act=activation_function initializer_range=init_std"),
        **renames("embedding_dropout=dropout residual_dropout=dropout"),
        "pad_token_id": Codec("pad_token_id", check_padding),
    },
    {"position": "sinusoidal_t2t", "position_offset": 2},
    (("{embed_tokens,norm}", "{embed_tokens,layer_norm}"), *ROWS["fairseq_layers"]),
    COMMON[:2],
    prefix="model.",
    inert="decoder_start_token_id",
)

DECODERS_LIKE_GPT = (GPT1, GPT_NEO, GPT_BIGCODE, MPT, BIOGPT, XGLM)
