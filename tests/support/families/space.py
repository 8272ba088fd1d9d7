"""Legal configs of each official architecture: axes of alternatives, of which a test draws one each.

What is drawn is legal for the official class and convertible, so nothing is filtered away.
"""

from typing import Any

from hypothesis import strategies as st

Fields = dict[str, Any]
Axis = list[Fields]


def each(name: str, *values: Any) -> Axis:
    """One field by itself."""
    return [{name: value} for value in values]


def named(axis: Axis, **names: str) -> Axis:
    """The same axis in the words of an architecture that calls some fields otherwise."""
    return [{names.get(name, name): value for name, value in fields.items()} for fields in axis]


def crossed(*axes: Axis) -> Axis:
    """A few alternatives that take one of each axis, in turn."""
    count = max(map(len, axes))
    turns = [[axis[(number + shift) % len(axis)] for shift, axis in enumerate(axes)] for number in range(count)]
    return [{name: value for fields in turn for name, value in fields.items()} for turn in turns]


# A rotation turns pairs, so heads are of even width.
WIDTHS: Axis = [
    {"hidden_size": 32, "num_attention_heads": 4},
    {"hidden_size": 30, "num_attention_heads": 5},
    {"hidden_size": 24, "num_attention_heads": 1},
    {"hidden_size": 40, "num_attention_heads": 2},
]
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "quick_gelu", "gelu_pytorch_tanh")
INNER = each("intermediate_size", 48, 17, 64)
DEPTH = each("num_hidden_layers", 1, 2, 3)
EPSILON = each("layer_norm_eps", 1e-5, 1e-12, 1e-3)
RANGE = each("initializer_range", 0.1, 0.04)
TIED = each("tie_word_embeddings", True, False)
LABELS: Axis = [{}, {"id2label": dict(enumerate("abcde")), "label2id": {name: i for i, name in enumerate("abcde")}}]
ENCODER = [WIDTHS, INNER, DEPTH, EPSILON, RANGE, each("hidden_act", *ACTIVATIONS)]
BERT = [
    *ENCODER,
    TIED,
    each("type_vocab_size", 2, 5),
    each("max_position_embeddings", 24, 13),
    each("vocab_size", 61, 83),
]
ROPE: Axis = [
    {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
    {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}},
    {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}, "max_position_embeddings": 5},
    {
        "rope_parameters": {
            **{"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 8},
            **{"beta_fast": 16.0, "beta_slow": 2.0},
        }
    },
    {
        "rope_parameters": {
            **{"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "original_max_position_embeddings": 8},
            **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
        }
    },
]
GROUPS: Axis = [
    {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6},
    {"hidden_size": 30, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8},
    {"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12},
]
LLAMA = [GROUPS, INNER, DEPTH, named(EPSILON, layer_norm_eps="rms_norm_eps"), RANGE, TIED, ROPE]
LLAMA += [each("hidden_act", "silu", "gelu", "relu")]
WINDOWS: Axis = [
    {},
    {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
]
QWEN2_GROUPS: Axis = [
    {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2},
    {"hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 3},
    {"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2},
]
T5_WIDTHS: Axis = [
    {"d_model": 32, "num_heads": 4, "d_kv": 6},
    {"d_model": 20, "num_heads": 2, "d_kv": 10},
    {"d_model": 27, "num_heads": 3, "d_kv": 9},
]
T5 = [
    T5_WIDTHS,
    each("d_ff", 48, 17),
    [{"num_layers": 1, "num_decoder_layers": 3}, {"num_layers": 2, "num_decoder_layers": 2}],
    [
        {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12},
        {"relative_attention_num_buckets": 4, "relative_attention_max_distance": 5},
    ],
    named(EPSILON, layer_norm_eps="layer_norm_epsilon"),
    each("feed_forward_proj", "relu", "gelu", "gated-gelu", "gated-silu", "gated-relu"),
    TIED,
]
BART = [
    [{"d_model": 32}, {"d_model": 24}, {"d_model": 40}],
    [{"encoder_attention_heads": 4, "decoder_attention_heads": 2}, {"encoder_attention_heads": 1}],
    [{"encoder_layers": 1, "decoder_layers": 3}, {"encoder_layers": 3, "decoder_layers": 1}],
    [{"encoder_ffn_dim": 17, "decoder_ffn_dim": 48}, {"encoder_ffn_dim": 64, "decoder_ffn_dim": 33}],
    each("activation_function", "gelu", "relu", "swish", "gelu_new"),
    each("scale_embedding", True, False),
    each("max_position_embeddings", 24, 13),
    each("init_std", 0.1, 0.04),
]
VIT = [*ENCODER, each("qkv_bias", True, False), each("pooler_act", "tanh", "relu")]
DISTILBERT = [
    named(WIDTHS, hidden_size="dim", num_attention_heads="n_heads"),
    named(INNER, intermediate_size="hidden_dim"),
    named(DEPTH, num_hidden_layers="n_layers"),
    RANGE,
    TIED,
    each("activation", "gelu", "relu"),
    each("max_position_embeddings", 24, 13),
]
MODERNBERT = [
    WIDTHS,
    INNER,
    [{"num_hidden_layers": 1}, {"num_hidden_layers": 4}, {"num_hidden_layers": 5, "global_attn_every_n_layers": 3}],
    named(EPSILON, layer_norm_eps="norm_eps"),
    RANGE,
    TIED,
    each("hidden_activation", "gelu", "silu", "relu"),
    each("local_attention", 2, 4, 6),
    each("norm_bias", True, False),
    each("attention_bias", True, False),
    each("mlp_bias", True, False),
    each("classifier_bias", True, False),
    each("decoder_bias", True, False),
    each("classifier_activation", "gelu", "relu"),
    each("classifier_pooling", "cls", "mean"),
]
DINOV2 = [
    WIDTHS,
    DEPTH,
    EPSILON,
    RANGE,
    [{"mlp_ratio": 2}, {"mlp_ratio": 3, "use_swiglu_ffn": True}, {"mlp_ratio": 4, "hidden_act": "relu"}],
    each("layerscale_value", 1.0, 0.01),
    each("qkv_bias", True, False),
    [{"image_size": 12, "patch_size": 4}, {"image_size": 12, "patch_size": 4, "drop_path_rate": 0.1}],
]
GPT2 = [
    named(WIDTHS, hidden_size="n_embd", num_attention_heads="n_head"),
    named(INNER, intermediate_size="n_inner"),
    named(DEPTH, num_hidden_layers="n_layer"),
    named(EPSILON, layer_norm_eps="layer_norm_epsilon"),
    RANGE,
    TIED,
    each("activation_function", *ACTIVATIONS),
    each("scale_attn_weights", True, False),
    each("n_positions", 24, 17),
]
OPT = [
    WIDTHS,
    named(INNER, intermediate_size="ffn_dim"),
    DEPTH,
    TIED,
    named(RANGE, initializer_range="init_std"),
    each("activation_function", "relu", "gelu", "silu"),
    each("enable_bias", True, False),
    [{}, {"do_layer_norm_before": False}, {"_remove_final_layer_norm": True}],
]
BLOOM = [
    named(WIDTHS, num_attention_heads="n_head"),
    named(DEPTH, num_hidden_layers="n_layer"),
    named(EPSILON, layer_norm_eps="layer_norm_epsilon"),
    RANGE,
    TIED,
]
PARTIAL: Axis = [
    {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 1.0}},
    {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "partial_rotary_factor": 1.0, "factor": 2.0}},
]
GPT_NEOX = [
    [{"hidden_size": 32, "num_attention_heads": 4}, {"hidden_size": 24, "num_attention_heads": 2}],
    INNER,
    DEPTH,
    EPSILON,
    RANGE,
    TIED,
    PARTIAL,
    each("hidden_act", "gelu", "gelu_fast", "relu"),
    each("use_parallel_residual", True, False),
    each("attention_bias", True, False),
]
CLIP_TEXT = [*ENCODER, each("eos_token_id", 2, 3), each("max_position_embeddings", 24, 13), each("vocab_size", 61, 83)]
CLIP_IMAGE = [*ENCODER, [{"image_size": 12, "patch_size": 4}, {"image_size": 12, "patch_size": 2}]]


def part(name: str, axis: Axis, **fixed: Any) -> Axis:
    """An axis of each alternative inside a part of a config, beside what every one of them has."""
    return [{name: {**fixed, **fields}} for fields in axis]


CLIP = [
    part("text_config", crossed(*CLIP_TEXT), pad_token_id=1, bos_token_id=2),
    part("vision_config", crossed(*CLIP_IMAGE)),
    each("projection_dim", 20, 7),
    each("logit_scale_init_value", 2.6592, 0.0),
]
SPEECH = [
    *[axis for axis in BART if "max_position_embeddings" not in axis[0] and "scale_embedding" not in axis[0]],
    each("num_mel_bins", 10),
    each("max_target_positions", 24, 13),
    TIED,
]
BACKBONES: Axis = [
    {"backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}},
    {"backbone_config": {"model_type": "resnet", "hidden_sizes": [8, 12], "depths": [1, 2], "layer_type": "basic"}},
    {"backbone_config": {"model_type": "convnext", "hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2}},
]
DETR = [
    *[axis for axis in BART if not axis[0].keys() & {"scale_embedding", "max_position_embeddings"}],
    each("num_queries", 7, 1),
    each("eos_coefficient", 0.1, 1.0),
    each("giou_cost", 2, 0),
    each("class_cost", 1, 3),
    each("bbox_loss_coefficient", 5, 0),
    BACKBONES,
]
SPACES: dict[str, list[Axis]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), [*BERT, LABELS]),
    "electra": [*BERT, each("embedding_size", 20, 16)],
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
    **dict.fromkeys(("vit", "deit"), VIT),
    "dinov2": DINOV2,
    "gpt2": GPT2,
    "opt": OPT,
    "bloom": BLOOM,
    "gpt_neox": GPT_NEOX,
    "llama": [*LLAMA, each("attention_bias", True, False), each("mlp_bias", True, False)],
    "mistral": [*LLAMA, each("sliding_window", 3, 8)],
    "qwen2": [QWEN2_GROUPS, *LLAMA[1:], WINDOWS],
    "qwen3": [*LLAMA, WINDOWS, each("attention_bias", True, False)],
    **dict.fromkeys(("t5", "mt5"), T5),
    **dict.fromkeys(("bart", "mbart", "pegasus"), [*BART, TIED]),
    "m2m_100": BART,
    "clip": CLIP,
    "clip_text_model": CLIP_TEXT,
    "clip_vision_model": CLIP_IMAGE,
    "whisper": [*SPEECH, each("apply_spec_augment", True, False), each("median_filter_width", 7, 3)],
    "speech_to_text": [
        *(axis for axis in SPEECH if "num_mel_bins" not in axis[0]),
        each("scale_embedding", True, False),
        [{}, {"num_conv_layers": 1, "conv_kernel_sizes": [3]}, {"num_conv_layers": 2, "conv_kernel_sizes": [7, 5]}],
        each("conv_channels", 28, 10),
    ],
    "detr": DETR,
    "marian": [*BART, [{}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 65}]],
}


def configs(model_type: str) -> st.SearchStrategy[Fields]:
    """One alternative of each axis of an architecture."""
    axes = [st.sampled_from(axis) for axis in SPACES[model_type]]
    return st.tuples(*axes).map(lambda drawn: {name: value for fields in drawn for name, value in fields.items()})
