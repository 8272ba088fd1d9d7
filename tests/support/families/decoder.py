"""Official decoders, every class of each at a tiny size."""

from families.base import SIZES, Family, Inputs, classes, rope, spans, text, token_labels

HEADS: dict[str, Inputs] = {
    "Model": text,
    "ForCausalLM": token_labels,
    "ForSequenceClassification": classes,
    "ForTokenClassification": token_labels,
    "ForQuestionAnswering": spans,
}
LLAMA_SIZES = {
    **{**SIZES, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 32},
    **{"attention_dropout": 0.3, "initializer_range": 0.1},
}

GPT2 = Family(
    "gpt2",
    "GPT2",
    {"LMHeadModel" if head == "ForCausalLM" else head: inputs for head, inputs in HEADS.items()},
    {
        **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "n_inner": 48, "initializer_range": 0.1},
        **{"embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.15},
    },
    {"attention_multiplier": 1.0},
    told="positions",
)
LLAMA = Family("llama", "Llama", HEADS, LLAMA_SIZES, {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}})
MISTRAL = Family("mistral", "Mistral", HEADS, {**LLAMA_SIZES, "sliding_window": 4}, {"sliding_window": 5})

OPT = Family(
    "opt",
    "OPT",
    {head: inputs for head, inputs in HEADS.items() if head != "ForTokenClassification"},
    {
        **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "init_std": 0.1},
        **{"max_position_embeddings": 24, "dropout": 0.2, "attention_dropout": 0.3},
    },
    {"position_offset": 1, "max_position_embeddings": 25},
    # Padding stands at -1 unless told, and the first label is predicted there.
    told="positions",
)
BLOOM = Family(
    "bloom",
    "Bloom",
    HEADS,
    {
        **{"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.1},
        **{"hidden_dropout": 0.2, "attention_dropout": 0.3},
    },
    {"position": "none"},
)
GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoX",
    HEADS,
    {
        **{**SIZES, "max_position_embeddings": 32, "initializer_range": 0.1, "hidden_dropout": 0.2},
        **{"attention_dropout": 0.3, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
    },
    {"parallel_residual": False},
)
QWEN2 = Family(
    "qwen2",
    "Qwen2",
    HEADS,
    {name: size for name, size in LLAMA_SIZES.items() if name != "head_dim"},
    {"norm_eps": 1e-1},
)
QWEN3 = Family("qwen3", "Qwen3", HEADS, LLAMA_SIZES, {"norm_eps": 1e-1})

FAMILIES = [GPT2, OPT, BLOOM, GPT_NEOX, LLAMA, MISTRAL, QWEN2, QWEN3]
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
WINDOWS = {"use_sliding_window": True, "sliding_window": 4}
LOW, HIGH = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}, {"original_max_position_embeddings": 8}
VARIANTS = [
    GPT2.variant("LMHeadModel", "unscaled", {"attention_multiplier": None}, scale_attn_weights=False),
    GPT2.variant("LMHeadModel", "untied", {"norm_eps": 1e-1}, tie_word_embeddings=False, n_inner=None),
    LLAMA.variant("ForCausalLM", "biased", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    LLAMA.variant("ForCausalLM", "linear", **rope("linear")),
    LLAMA.variant("ForCausalLM", "dynamic", {"norm_eps": 1e-1}, **rope("dynamic"), max_position_embeddings=6),
    LLAMA.variant("ForCausalLM", "llama3", **rope("llama3", **LOW, **HIGH)),
    LLAMA.variant("ForCausalLM", "yarn", **rope("yarn", **HIGH)),
    MISTRAL.variant("ForCausalLM", "full", {"norm_eps": 1e-1}, sliding_window=None),
    OPT.variant("ForCausalLM", "post-norm", {"norm_first": True}, do_layer_norm_before=False),
    *(
        OPT.variant(head, "narrow", {"norm_first": True}, do_layer_norm_before=False, word_embed_proj_dim=20)
        for head in OPT.heads
    ),
    OPT.variant("ForCausalLM", "unnormed", {"hidden_act": "gelu"}, _remove_final_layer_norm=True),
    OPT.variant("ForCausalLM", "untied", enable_bias=False, tie_word_embeddings=False),
    BLOOM.variant("ForCausalLM", "untied", {"norm_eps": 1e-1}, n_head=2, tie_word_embeddings=False),
    GPT_NEOX.variant("ForCausalLM", "sequential", {"parallel_residual": True}, use_parallel_residual=False),
    GPT_NEOX.variant("ForCausalLM", "turned whole", **rope("default", partial_rotary_factor=1.0)),
    GPT_NEOX.variant("ForCausalLM", "linear", **rope("linear", partial_rotary_factor=0.5), attention_bias=False),
    GPT_NEOX.variant("ForCausalLM", "yarn", **rope("yarn", partial_rotary_factor=0.5, **HIGH)),
    GPT_NEOX.variant("ForCausalLM", "tied", tie_word_embeddings=True, hidden_act="gelu_fast"),
    QWEN2.variant("ForCausalLM", "slid", {"sliding_window": 5}, **WINDOWS, max_window_layers=0),
    QWEN2.variant("ForCausalLM", "mixed", {"sliding_window": 5}, **WINDOWS, max_window_layers=1),
    QWEN2.variant(
        "ForCausalLM", "alternating", {"sliding_window": 5}, **WINDOWS, num_hidden_layers=3, layer_types=ALTERNATING
    ),
    QWEN2.variant("ForCausalLM", "tied", tie_word_embeddings=True, head_dim=6, **rope("yarn", **HIGH)),
    QWEN3.variant("ForCausalLM", "biased", attention_bias=True, tie_word_embeddings=True),
    QWEN3.variant("ForCausalLM", "mixed", {"sliding_window": 5}, **WINDOWS, max_window_layers=1),
    QWEN3.variant("ForCausalLM", "llama3", **rope("llama3", **LOW, **HIGH)),
]
