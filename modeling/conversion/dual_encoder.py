"""Conversion of dual encoders: CLIP and each of its halves, as tables."""

from collections.abc import Iterable
from dataclasses import replace

from ...configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from ..modeling_dual_encoder import QkvDualEncoderModel, QkvTextEncoderModel
from ..modeling_image_encoder import QkvImageEncoderModel
from .config import BASE, Architecture, Codec, Fields, Head, activation, same
from .weights import placed

STACK: Fields = {
    **same("hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range attention_dropout"),
    "hidden_act": activation("hidden_act"),
    "norm_eps": "layer_norm_eps",
}
# What the first release called the end of a text was another token, so the text is read at the highest instead.
LEGACY_END = 2
IMAGE_FIELDS: Fields = {**STACK, **same("image_size patch_size num_channels")}
IMAGE_WORDS = {
    **{"patch_bias": False, "pooling": "first_norm"},
    **{"embedding_norm": True, "final_norm": False},
}
# No class here has the heads that read these.
UNREAD = frozenset(
    "head_transform head_act head_bias lm_head_bias classifier_dropout qa_dropout label_smoothing".split()
)
UNREAD |= {"tie_word_embeddings"}
# Starts of training, the width of another class, and what the first release wrote beside.
INERT = frozenset("initializer_factor projection_dim".split())
# The first releases wrote these into every part.
ASSUMED = {
    **dict.fromkeys("add_cross_attention is_decoder tie_encoder_decoder use_bfloat16".split(), False),
    **{"dropout": 0.0, "tie_word_embeddings": True},
}


def text_fields(part: str = "") -> Fields:
    """Return the fields of a text encoder, which is a part of the whole or stands alone."""
    return {
        **STACK,
        **same("vocab_size max_position_embeddings pad_token_id bos_token_id eos_token_id"),
        "pooling": Codec(
            "eos_token_id",
            read=lambda end, theirs: "highest" if end == LEGACY_END else "end",
            write=lambda pooling, ours: LEGACY_END if pooling == "highest" else ours[f"{part}eos_token_id"],
        ),
    }


def inside(part: str, fields: Fields) -> Fields:
    """Put fields under the name of a part, on both sides."""
    return {
        f"{part}.{ours}": replace(theirs, name=f"{part}.{theirs.name}")
        if isinstance(theirs, Codec)
        else f"{part}.{theirs}"
        for ours, theirs in fields.items()
    }


def under(part: str, names: Iterable[str]) -> frozenset[str]:
    """Put names of fields under the name of a part."""
    return frozenset(f"{part}.{name}" for name in names)


LAYERS = (
    ("layers.*.self_attn.{q,k,v,o}_proj", "encoder.layers.*.self_attn.{q_proj,k_proj,v_proj,out_proj}"),
    ("layers.*.self_attn_residual.norm", "encoder.layers.*.layer_norm1"),
    ("layers.*.mlp.{up,down}_proj", "encoder.layers.*.mlp.{fc1,fc2}"),
    ("layers.*.mlp_residual.norm", "encoder.layers.*.layer_norm2"),
)
TEXT_ROWS = (
    ("embed_tokens", "embeddings.token_embedding"),
    ("position.table", "embeddings.position_embedding"),
    *LAYERS,
    ("norm", "final_layer_norm"),
)
IMAGE_ROWS = (
    ("embed_tokens.class_token", "embeddings.class_embedding", "widen", "widen"),
    ("embed_tokens.projection", "embeddings.patch_embedding"),
    ("position.table", "embeddings.position_embedding"),
    ("embed_norm", "pre_layrnorm"),
    *LAYERS,
    ("pooler.norm", "post_layernorm"),
)
PARTS = ("text_config", "vision_config")
CLIP = Architecture(
    "clip",
    QkvDualEncoderConfig,
    {
        **same("projection_dim logit_scale_init_value"),
        **inside("text_config", text_fields("text_config.")),
        **inside("vision_config", IMAGE_FIELDS),
    },
    {f"vision_config.{name}": word for name, word in IMAGE_WORDS.items()},
    (
        *placed(TEXT_ROWS, "text_model.", "text_model."),
        *placed(IMAGE_ROWS, "vision_model.", "vision_model."),
        ("{text,visual}_projection", "{text,visual}_projection"),
        ("logit_scale", "logit_scale"),
    ),
    (Head(QkvDualEncoderModel, "CLIPModel", prefixes=BASE),),
    free=frozenset({"embedding_chunk_size"}).union(*(under(part, UNREAD) for part in PARTS)),
    inert=frozenset({"initializer_factor"}).union(*(under(part, INERT) for part in PARTS)),
    assumed={f"{part}.{name}": value for part in PARTS for name, value in ASSUMED.items()},
)
CLIP_TEXT = Architecture(
    "clip_text_model",
    QkvTextEncoderConfig,
    text_fields(),
    {},
    TEXT_ROWS,
    (Head(QkvTextEncoderModel, "CLIPTextModel", prefixes=BASE),),
    free=UNREAD,
    inert=INERT,
    assumed=ASSUMED,
)
CLIP_IMAGE = Architecture(
    "clip_vision_model",
    QkvImageEncoderConfig,
    IMAGE_FIELDS,
    IMAGE_WORDS,
    IMAGE_ROWS,
    (Head(QkvImageEncoderModel, "CLIPVisionModel", prefixes=BASE),),
    free=UNREAD,
    inert=INERT,
    assumed=ASSUMED,
)
DUAL_ENCODERS = (CLIP, CLIP_TEXT, CLIP_IMAGE)
