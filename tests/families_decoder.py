"""Official decoders, every class of each at a tiny size."""

from families_base import SIZES, Family, Inputs, classes, rope, spans, text, token_labels

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

FAMILIES = [GPT2, LLAMA, MISTRAL]
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
]
