"""Conversion of Llama's descendants with other norms, factors or positions, as tables: OLMo, Gemma, Granite and others.

Stock Granite and HyperCLOVA X multiply given embeddings, too, where ours multiplies those of its table alone. In
training, stock models drop out no attention weights where theirs has no field for it, and ours does.
"""

from dataclasses import replace

from .config import Codec, Head, Values, renames, translated
from .decoder import COMMON, DROPOUT, LANGUAGE_MODEL, LAYER_PATTERN, LLAMA, PARTIAL_ROPE, WHOLE_ROPE, their_layers
from .decoder_llama import PLAIN, input_biases
from .encoder_rotary import ROPE_BY_PATTERN
from .weights import ROWS

WORDS = {**LLAMA.words, "mlp_bias": False}
# Heads are as wide as the layer.
NARROW = {**DROPOUT, **renames("norm_eps=rms_norm_eps"), **WHOLE_ROPE}
ROOT_OF_WIDTH = Codec("hidden_size", lambda width, _: width**0.5, lambda _, ours: ours["hidden_size"])


def rotated_layers(flags: list[bool]) -> str | list[str]:
    """Return the position of each layer, one word where all are alike."""
    words = ["rope" if flag else "none" for flag in flags]
    return words[0] if len(set(words)) == 1 else words


def their_positions(position: str | list[str], ours: Values) -> list[str]:
    """Return the position of each layer."""
    return position if isinstance(position, list) else [position] * ours["num_hidden_layers"]


def rotated_windows(types: list[str], theirs: Values) -> str | list[str]:
    """Return the positions of a model that rotates in layers with a window, in all where no layer has one."""
    sliding = [name == "sliding_attention" for name in types]
    return rotated_layers(sliding if theirs["sliding_window"] else [True] * len(types))


# Written as the pattern is, which reading compares.
ROTATED_WINDOWS = Codec("layer_types", rotated_windows, lambda _, ours: their_layers(ours["pattern"], ours))
OLMO = replace(
    PLAIN,
    model_type="olmo",
    fields={**DROPOUT, **WHOLE_ROPE},
    words={"feed_forward": "glu", "position": "rope", "mlp_bias": False, "norm_gain": "none", "norm_eps": 1e-5},
    rows=ROWS["olmo"],
    heads=COMMON,
    free="norm_bias",
)
OLMO2 = replace(
    PLAIN,
    model_type="olmo2",
    fields=NARROW,
    words={**WORDS, "norm_position": "inside", "query_key_norm": "width"},
    rows=ROWS["olmo2"],
    heads=COMMON,
)
OLMO3 = replace(OLMO2, model_type="olmo3", fields={**NARROW, **ROPE_BY_PATTERN, "pattern": LAYER_PATTERN})
EXAONE4 = replace(
    OLMO2,
    model_type="exaone4",
    fields={**NARROW, "head_dim": "head_dim", "pattern": LAYER_PATTERN, "position": ROTATED_WINDOWS},
    words={"norm": "rms", "feed_forward": "glu", "attention_bias": False, "mlp_bias": False}
    | {"norm_position": "inside", "query_key_norm": "head"},
    rows=ROWS["exaone4"],
    heads=LLAMA.heads,
    inert="sliding_window_pattern",  # said by `layer_types`
)
GLM4 = replace(
    PLAIN,
    model_type="glm4",
    fields={**LLAMA.fields, **PARTIAL_ROPE, "attention_bias": input_biases("attention_bias")},
    words={**WORDS, "norm_position": "sandwich"},
    rows=ROWS["glm4"],
)
GEMMA = replace(
    PLAIN,
    model_type="gemma",
    fields={**LLAMA.fields, "embedding_multiplier": ROOT_OF_WIDTH},
    words={**WORDS, "norm_gain": "zero_centered"},
    inert="hidden_activation",
)
GEMMA_FIELDS = {
    **GEMMA.fields,
    "hidden_act": "hidden_activation",
    "pattern": LAYER_PATTERN,
    "attention_multiplier": Codec(
        "query_pre_attn_scalar",
        lambda size, theirs: size**-0.5,
        lambda factor, ours: round((factor or ours["head_dim"] ** -0.5) ** -2),
    ),
}
GEMMA3 = replace(
    GEMMA,
    model_type="gemma3_text",
    fields={**GEMMA_FIELDS, **ROPE_BY_PATTERN},
    words={**GEMMA.words, "norm_position": "sandwich", "query_key_norm": "head"},
    rows=(*ROWS["gemma2"], *ROWS["normed_heads"]),
    heads=(COMMON[0], Head("ForCausalLM", LANGUAGE_MODEL, theirs="Gemma3ForCausalLM"), COMMON[2]),
    inert="_sliding_window_pattern cache_implementation hidden_act rope_local_base_freq sliding_window_pattern",
)
NEMOTRON = replace(
    PLAIN,
    model_type="nemotron",
    fields={**DROPOUT, **PARTIAL_ROPE},
    words={"position": "rope", "norm_gain": "zero_centered"},
    rows=ROWS["arcee"],
    heads=LLAMA.heads,
    inert="kv_channels",
)
GRANITE_FIELDS = {
    "attention_multiplier": Codec(
        "attention_multiplier", write=lambda factor, ours: factor or ours["head_dim"] ** -0.5
    ),
}
GRANITE = replace(
    PLAIN,
    model_type="granite",
    fields={
        **NARROW,
        **GRANITE_FIELDS,
        "logit_scale": Codec("logits_scaling", lambda scaling, _: 1 / scaling, lambda scale, _: 1 / scale),
    },
    heads=COMMON[:2],
)
HYPERCLOVA_X = replace(
    GRANITE,
    model_type="hyperclovax",
    fields={
        **LLAMA.fields,
        **GRANITE_FIELDS,
        "logit_scale": "logits_scaling",
        "norm_position": translated("use_post_norm", {True: "sandwich", False: "before"}),
    },
    # Without norms behind branches it has none of the first row.
    rows=(*ROWS["norms_behind"], *LLAMA.rows),
)
SMOLLM3 = replace(
    PLAIN,
    model_type="smollm3",
    fields={
        **NARROW,
        "pattern": LAYER_PATTERN,
        "position": Codec(
            "no_rope_layers",
            lambda flags, theirs: rotated_layers(flags),
            lambda position, ours: [int(word != "none") for word in their_positions(position, ours)],
        ),
        # Their switch has no field of ours; it stands beside one that never changes.
        "feed_forward": Codec("use_sliding_window", lambda *_: "glu", lambda _, ours: "sliding" in ours["pattern"]),
    },
    words={"norm": "rms"},
    heads=LLAMA.heads,
    # `no_rope_layers` and `layer_types` say the same.
    inert="max_window_layers no_rope_layer_interval pretraining_tp",
)
HUNYUAN = replace(
    PLAIN,
    model_type="hunyuan_v1_dense",
    words={**WORDS, "query_key_norm": "head_after_rotation"},
    rows=(*LLAMA.rows, *ROWS["hunyuan"]),
    heads=COMMON,
    inert="eod_token_id pretraining_tp",
)

DECODERS_WITH_OTHER_NORMS = (
    *(OLMO, OLMO2, OLMO3, EXAONE4, GLM4, GEMMA, GEMMA3),
    *(NEMOTRON, GRANITE, HYPERCLOVA_X, SMOLLM3, HUNYUAN),
)
