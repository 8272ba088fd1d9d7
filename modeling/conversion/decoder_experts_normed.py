"""Conversion of mixtures of experts with other norms and factors: OLMoE, FlexOlmo, GraniteMoE, MiniMax-M2 and kin.

`decoder_experts.py` tells the differences in training.
"""

from dataclasses import replace

from .config import SCALED, Codec, Head, Value, Values
from .decoder import COMMON, LANGUAGE_MODEL, LAYER_PATTERN, LLAMA, MODEL, PARTIAL_ROPE, QWEN2, SCORED
from .decoder_experts import DENSE_LAYERS, EXPERT_ROWS, EXPERTS, MIXTRAL, first_dense, shared_experts
from .decoder_normed import GRANITE, HUNYUAN, NARROW, OLMO2, ROTATED_WINDOWS, rotated_layers, their_positions
from .weights import ROWS

WIDTH_NORM = ROWS["norms_of_width"]
OLMOE = replace(
    MIXTRAL,
    model_type="olmoe",
    fields=NARROW,
    words={**OLMO2.words, "feed_forward": "moe", "norm_position": "before"},
    rows=(*EXPERT_ROWS, *WIDTH_NORM),
    heads=COMMON[:2],
    inert="",
)
FLEX_OLMO = replace(
    OLMOE,
    model_type="flex_olmo",
    words={**OLMO2.words, "feed_forward": "moe"},
    rows=(*OLMO2.rows, *EXPERTS),
)
GRANITE_MOE = replace(
    OLMOE,
    model_type="granitemoe",
    fields={**GRANITE.fields, "num_experts": "num_local_experts"},
    words={**LLAMA.words, "feed_forward": "moe", "mlp_bias": False},
    rows=(*LLAMA.rows, *ROWS["granite_experts"]),
)
MINIMAX_M2 = replace(
    OLMOE,
    model_type="minimax_m2",
    fields={**LLAMA.fields, **PARTIAL_ROPE},
    words={**OLMOE.words, "attention_bias": False, "router": "sigmoid", "score_correction_bias": True},
    rows=(*EXPERT_ROWS, *WIDTH_NORM, *ROWS["minimax_experts"]),
    inert="router_jitter_noise",
)
HUNYUAN_MOE = replace(
    OLMOE,
    model_type="hunyuan_v1_moe",
    fields={**HUNYUAN.fields, "shared_expert_intermediate_size": "intermediate_size"},
    words={**HUNYUAN.words, "feed_forward": "moe"},
    rows=(*HUNYUAN.rows, *ROWS["hunyuan_experts"]),
    heads=COMMON,
    free=f"{MIXTRAL.free} router_aux_loss_coef",
    inert=f"{HUNYUAN.inert} sep_token_id",
)
AFMOE = replace(
    OLMOE,
    model_type="afmoe",
    fields={
        **LLAMA.fields,
        "pattern": LAYER_PATTERN,
        "position": ROTATED_WINDOWS,
        "feed_forward": first_dense("num_dense_layers"),
        "shared_expert_intermediate_size": shared_experts("num_shared_experts"),
        "embedding_multiplier": replace(SCALED, name="mup_enabled"),
        "routed_scaling_factor": "route_scale",
    },
    words={"norm": "rms", "norm_position": "sandwich", "query_key_norm": "head", "attention_gate": "unbiased"}
    | {"mlp_bias": False, "router": "sigmoid", "score_correction_bias": True},
    rows=ROWS["afmoe"],
    free=f"{MIXTRAL.free} router_aux_loss_coef",
    inert="global_attn_every_n_layers",  # said by `layer_types`
)


def our_kernel(types: list[str], theirs: Values) -> str | list[str]:
    """Return the kernel of each layer, one word where all are alike."""
    words = ["gated_delta" if name == "linear_attention" else "softmax" for name in types]
    return words[0] if len(set(words)) == 1 else words


def their_kinds(_: Value, ours: Values) -> list[str]:
    """Name the kind of each layer by its kernel."""
    words = their_positions(ours["kernel"], ours)
    return ["linear_attention" if word == "gated_delta" else "full_attention" for word in words]


QWEN3_5 = replace(
    QWEN2,
    model_type="qwen3_5_text",
    fields={
        **LLAMA.fields,
        **PARTIAL_ROPE,
        "kernel": Codec("layer_types", our_kernel, their_kinds),
        # Order comes from convolutions elsewhere.
        "position": Codec(
            "layer_types",
            lambda types, _: rotated_layers([name == "full_attention" for name in types]),
            their_kinds,
        ),
        "attention_gate": Codec("attention_bias", lambda biased, _: biased or "unbiased", lambda gate, _: gate is True),
    },
    words={"norm": "rms", "feed_forward": "glu", "mlp_bias": False}
    | {"query_key_norm": "head", "norm_gain": "zero_centered"},
    rows=(*ROWS["qwen3_5"], *LLAMA.rows),
    heads=(MODEL, Head("ForCausalLM", LANGUAGE_MODEL, theirs="Qwen3_5ForCausalLM"), SCORED),
    inert="",
    assumed={},
)
QWEN3_NEXT = replace(
    QWEN3_5,
    model_type="qwen3_next",
    fields={**QWEN3_5.fields, "feed_forward": DENSE_LAYERS},
    words={"norm": "rms", "mlp_bias": False, "shared_expert_gate": True}
    | {"query_key_norm": "head", "norm_gain": "zero_centered"},
    rows=(*ROWS["qwen3_next"], *QWEN3_5.rows, *EXPERTS, *ROWS["gated_shared_expert"]),
    heads=LLAMA.heads,
    free=MIXTRAL.free,
    inert="decoder_sparse_step mlp_only_layers",
)

DECODERS_OF_NORMED_EXPERTS = (OLMOE, FLEX_OLMO, GRANITE_MOE, MINIMAX_M2, HUNYUAN_MOE, AFMOE, QWEN3_5, QWEN3_NEXT)
