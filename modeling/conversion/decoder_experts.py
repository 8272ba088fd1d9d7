"""Conversion of mixtures of experts, as tables: Mixtral, Qwen-MoE, dots.llm1, GLM-4.5, Ernie 4.5 MoE and GPT-OSS.

In training, ours adds the loss of uneven loads whenever its weight is set, stock if `output_router_logits` is True. Its
loads are those of the experts that were chosen; stock chooses again by a softmax alone, for Ernie without the bias.
Noise on the inputs of routers, which stock adds in training, and predictions of several tokens are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from .config import Codec, Fields, Value, Values, translated
from .decoder import (
    ANSWERS,
    COMMON,
    LAYER_PATTERN,
    LLAMA,
    LLAMA_WORDS,
    PARTIAL_ROPE,
    QWEN2,
    QWEN3,
    SCORED_TOKENS,
    UNBIASED,
    input_biases,
)
from .decoder_llama import ERNIE, WINDOW_OR_NONE
from .weights import ROWS

# A loss in training alone, which stock has not.
FREE = "router_z_loss_coef"
EXPERTS = ROWS["experts"]
EXPERT_ROWS = (*LLAMA.rows, *EXPERTS)


def layer_words(layers: Iterable[bool]) -> str | list[str]:
    """Name the feed-forward network of each layer from whether it is a mixture, with one word where all are alike."""
    names = ["moe" if mixed else "glu" for mixed in layers]
    return names[0] if len(set(names)) == 1 else names


def places(word: Value, ours: Values, kind: str) -> list[int]:
    """List the layers whose feed-forward network is of a kind."""
    names = [word] * ours["num_hidden_layers"] if isinstance(word, str) else word
    return [index for index, name in enumerate(names) if name == kind]


def by_layer(name: str, is_mixture: Callable[[int, Values], bool], write: Callable[[Value, Values], Value]) -> Codec:
    """Map the feed-forward network of each layer, by a function of its number and their fields."""
    return Codec(
        name,
        lambda _, theirs: layer_words(is_mixture(index, theirs) for index in range(theirs["num_hidden_layers"])),
        write,
    )


def is_mixture_of_qwen(index: int, theirs: Values) -> bool:
    """Return whether a layer of Qwen's is a mixture."""
    return index not in (theirs["mlp_only_layers"] or []) and (index + 1) % theirs["decoder_sparse_step"] == 0


def shared_experts(name: str) -> Codec:
    """Map the number of shared experts, which are one that is as many times as wide."""
    return Codec(
        name,
        lambda number, theirs: (number or 0) * theirs["moe_intermediate_size"],
        lambda width, ours: width // ours["moe_intermediate_size"],
    )


def first_dense(name: str) -> Codec:
    """Map the number of first layers that are no mixtures."""
    return by_layer(
        name,
        lambda index, theirs: index >= (theirs[name] or 0),
        lambda word, ours: len(places(word, ours, "glu")),
    )


DENSE_LAYERS = by_layer("mlp_only_layers", is_mixture_of_qwen, lambda word, ours: places(word, ours, "glu"))
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    fields={**LLAMA.fields, "pattern": WINDOW_OR_NONE},
    words={**LLAMA_WORDS, **UNBIASED, "feed_forward": "moe"},
    rows=EXPERT_ROWS,
    heads=(*COMMON, SCORED_TOKENS, ANSWERS),
    free=FREE,
    inert="router_jitter_noise",
    assumed={},
)
DENSE_OR_MIXED = {"norm": "rms", "position": "rope", "mlp_bias": False}
QWEN2_MOE = replace(
    MIXTRAL,
    model_type="qwen2_moe",
    fields={
        **QWEN2.fields,
        "attention_bias": input_biases("qkv_bias"),
        "feed_forward": DENSE_LAYERS,
        "sliding_window": Codec("sliding_window", lambda window, _: window or None, lambda window, _: window or 0),
    },
    words={"norm": "rms", "mlp_bias": False, "shared_expert_gate": True},
    rows=(*EXPERT_ROWS, *ROWS["gated_shared_expert"]),
    # Which layers are dense is said twice.
    inert=f"{QWEN2.inert} decoder_sparse_step mlp_only_layers",
)
QWEN3_MOE = replace(
    QWEN2_MOE,
    model_type="qwen3_moe",
    fields={
        **LLAMA.fields,
        "pattern": WINDOW_OR_NONE,
        "position": QWEN2.fields["position"],
        "feed_forward": DENSE_LAYERS,
        "num_experts": "num_local_experts",
    },
    words={"norm": "rms", "mlp_bias": False, "query_key_norm": "head"},
    rows=(*EXPERT_ROWS, QWEN3.rows[-1]),
    heads=LLAMA.heads,
)
DEEPSEEK_FIELDS: Fields = {
    "num_experts": "n_routed_experts",
    "shared_expert_intermediate_size": shared_experts("n_shared_experts"),
    "feed_forward": first_dense("first_k_dense_replace"),
}
DOTS1 = replace(
    MIXTRAL,
    model_type="dots1",
    fields={**LLAMA.fields, **DEEPSEEK_FIELDS, "pattern": LAYER_PATTERN},
    words={**DENSE_OR_MIXED, "query_key_norm": "head", "router": "sigmoid", "score_correction_bias": True},
    rows=(*QWEN3_MOE.rows, *ROWS["shared_experts"]),
    heads=COMMON[:2],
    free=f"{FREE} router_aux_loss_coef",
    inert="max_window_layers",
)
GLM4_MOE = replace(
    DOTS1,
    model_type="glm4_moe",
    fields={
        **LLAMA.fields,
        **PARTIAL_ROPE,
        **DEEPSEEK_FIELDS,
        "query_key_norm": translated("use_qk_norm", {False: "none", True: "head"}),
        "attention_bias": input_biases("attention_bias"),
    },
    words={**DENSE_OR_MIXED, "router": "sigmoid", "score_correction_bias": True},
    inert="num_mtp_layers num_nextn_predict_layers",
)


def is_mixture_of_ernie(index: int, theirs: Values) -> bool:
    """Return whether a layer of Ernie's is a mixture."""
    return theirs["moe_layer_start_index"] <= index <= theirs["moe_layer_end_index"]


def first_mixture(word: Value, ours: Values) -> int:
    """Return the number of the first layer that is a mixture."""
    return min(places(word, ours, "moe"), default=ours["num_hidden_layers"])


def last_mixture(_: Value, ours: Values) -> int:
    """Return the number of the last layer that is a mixture."""
    return max(places(ours["feed_forward"], ours, "moe"), default=ours["num_hidden_layers"] - 1)


ERNIE_MOE = replace(
    MIXTRAL,
    model_type="ernie4_5_moe",
    fields={
        **LLAMA.fields,
        "shared_expert_intermediate_size": shared_experts("moe_num_shared_experts"),
        "feed_forward": by_layer("moe_layer_start_index", is_mixture_of_ernie, first_mixture),
        # The other end has no field of ours; it stands beside one that never changes.
        "position": Codec("moe_layer_end_index", lambda *_: "rope", last_mixture),
    },
    words={"norm": "rms", **UNBIASED, "score_correction_bias": True},
    rows=(*ERNIE.rows, *EXPERTS, *ROWS["ernie_experts"]),
    heads=COMMON[:2],
    inert="moe_norm_min",
)
GPT_OSS = replace(
    MIXTRAL,
    model_type="gpt_oss",
    fields={**LLAMA.fields, "pattern": LAYER_PATTERN},
    words={**LLAMA_WORDS, "feed_forward": "moe", "mlp_bias": True, "attention_sinks": True},
    rows=ROWS["gpt_oss"],
    heads=(*COMMON, SCORED_TOKENS),
    inert="initial_context_length experts_per_token",  # second names in files
)

DECODERS_OF_EXPERTS = (MIXTRAL, QWEN2_MOE, QWEN3_MOE, DOTS1, GLM4_MOE, ERNIE_MOE, GPT_OSS)
