"""Conversion of mixtures of experts with other norms and factors: OLMoE, FlexOlmo, GraniteMoE, MiniMax-M2 and kin.

`decoder_experts.py` tells the differences in training.
"""

from dataclasses import replace

from .config import SCALED
from .decoder import (
    COMMON,
    GRANITE,
    HUNYUAN,
    LAYER_PATTERN,
    LLAMA,
    NARROW,
    OLMO2,
    PARTIAL_ROPE,
    ROTATED_WINDOWS_ALONE,
)
from .decoder_experts import EXPERT_ROWS, EXPERTS, MIXTRAL, first_dense, shared_experts
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
        "position": ROTATED_WINDOWS_ALONE,
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

DECODERS_OF_NORMED_EXPERTS = (OLMOE, FLEX_OLMO, GRANITE_MOE, MINIMAX_M2, HUNYUAN_MOE, AFMOE)
