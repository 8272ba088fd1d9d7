"""Conversion of decoders with RMS norms, rotary positions and gates: Llama and its kin, as tables."""

from dataclasses import replace

from ...configuration.configuration_decoder import QkvDecoderConfig
from .config import Architecture, Codec, Fields, Values, activation, our_pattern, same, their_layers
from .decoder import TOKEN_FIELDS, heads


def full_rotation(rope: Values | None, fields: Values) -> Values:
    """Drop the factor of a partial rotation, which Llama would ignore or fail on."""
    return {name: value for name, value in (rope or {}).items() if name != "partial_rotary_factor"}


LLAMA_FIELDS: Fields = {
    **TOKEN_FIELDS,
    **same("hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"),
    **same("max_position_embeddings attention_dropout"),
    "hidden_act": activation("hidden_act"),
    "norm_eps": "rms_norm_eps",
    "rope_parameters": Codec("rope_parameters", full_rotation, full_rotation),
}
LLAMA_WORDS = {"norm": "rms", "feed_forward": "glu", "position": "rope"}

LLAMA = Architecture(
    "llama",
    QkvDecoderConfig,
    {**LLAMA_FIELDS, **same("attention_bias mlp_bias")},
    LLAMA_WORDS,
    (
        ("embed_tokens", "embed_tokens"),
        ("layers.*.self_attn_residual.norm", "layers.*.input_layernorm"),
        ("layers.*.self_attn.{q,k,v,o}_proj", "layers.*.self_attn.{q,k,v,o}_proj"),
        ("layers.*.mlp_residual.norm", "layers.*.post_attention_layernorm"),
        ("layers.*.mlp.{gate,up,down}_proj", "layers.*.mlp.{gate,up,down}_proj"),
        ("norm", "norm"),
    ),
    heads("Llama", questions=("model.", "transformer.")),
    prefixes=("model.", "model."),
    inert=frozenset({"max_sequence_length"}),  # repeats max_position_embeddings
    assumed={"is_llama_config": True, "rope_interleaved": False},  # SmolLM2
)
# Later Mistrals see everything.
MISTRAL_FULL = replace(
    LLAMA,
    model_type="mistral",
    fields={**LLAMA_FIELDS, "sliding_window": Codec("sliding_window", lambda *_: None, lambda *_: None)},
    words={**LLAMA_WORDS, "attention_bias": False, "mlp_bias": False},
    heads=heads("Mistral"),
)
MISTRAL = replace(
    MISTRAL_FULL,
    fields={**LLAMA_FIELDS, **same("sliding_window")},
    words={**MISTRAL_FULL.words, "pattern": "sliding"},
)

QWEN_FIELDS: Fields = {
    **LLAMA_FIELDS,
    "pattern": Codec("layer_types", lambda types, theirs: our_pattern(types), their_layers),
    # Their switch has no field of ours; it stands beside one that never changes.
    "position": Codec(
        "use_sliding_window", lambda used, theirs: "rope", lambda word, ours: ours["sliding_window"] is not None
    ),
    "sliding_window": "sliding_window",
}
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    fields=QWEN_FIELDS,
    words={**LLAMA_WORDS, "attention_bias": ["q_proj", "k_proj", "v_proj"], "mlp_bias": False},
    heads=heads("Qwen2", questions=("model.", "transformer.")),
    # What these mean is said by layer_types and sliding_window.
    inert=frozenset({"max_window_layers", "use_sliding_window"}),
    assumed={"use_mrope": False},
)
QWEN3 = replace(
    QWEN2,
    model_type="qwen3",
    fields={**QWEN_FIELDS, **same("attention_bias")},
    words={**LLAMA_WORDS, "mlp_bias": False, "query_key_norm": True},
    rows=(*LLAMA.rows, ("layers.*.self_attn.{q,k}_norm", "layers.*.self_attn.{q,k}_norm")),
    heads=heads("Qwen3", questions=("model.", "transformer.")),
)

LLAMAS = (LLAMA, MISTRAL, MISTRAL_FULL, QWEN2, QWEN3)
