"""Conversion of dual encoders: CLIP and each of its halves, as tables."""

from collections.abc import Mapping
from dataclasses import replace

from ...configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from .config import BASE, Architecture, Codec, Fields, Head, renames
from .weights import placed

# Without dropout of embeddings and branches, and with another name of the third.
STACK = renames(
    "hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range attention_dropout "
    "hidden_act norm_eps=layer_norm_eps"
)
# In the first release the id of another token was the end of a text, so the text is read at the highest id instead.
LEGACY_END = 2
IMAGE_FIELDS = {**STACK, **renames("image_size patch_size num_channels")}
IMAGE_WORDS = {"patch_bias": False, "pooling": "first_norm", "embedding_norm": True, "final_norm": False}
# No class here has the heads that read these.
UNREAD = "head_transform head_act head_bias lm_head_bias classifier_dropout qa_dropout tie_word_embeddings"
# Starts of training, and the width of another class.
INERT = "initializer_factor projection_dim"
# The first releases wrote these into every part.
ASSUMED = {
    **dict.fromkeys("add_cross_attention is_decoder tie_encoder_decoder use_bfloat16".split(), False),
    **{"dropout": 0.0, "tie_word_embeddings": True},
}
PARTS = ("text_config", "vision_config")


def text_fields(part: str = "") -> Fields:
    """Return the fields of a text encoder, which is a part of the whole or stands alone."""
    return {
        **STACK,
        **renames("vocab_size max_position_embeddings pad_token_id bos_token_id eos_token_id"),
        "pooling": Codec(
            "eos_token_id",
            read=lambda end, theirs: "highest" if end == LEGACY_END else "end",
            write=lambda pooling, ours: LEGACY_END if pooling == "highest" else ours[f"{part}eos_token_id"],
        ),
    }


def inside(part: str, fields: Fields) -> Fields:
    """Put fields under the name of a part, on both sides."""
    return {
        f"{part}.{ours}": f"{part}.{theirs}"
        if isinstance(theirs, str)
        else replace(theirs, name=f"{part}.{theirs.name}")
        for ours, theirs in fields.items()
    }


def in_parts(values: Mapping[str, object]) -> dict[str, object]:
    """Put names of fields under the name of each part."""
    return {f"{part}.{name}": value for part in PARTS for name, value in values.items()}


LAYERS = (
    ("layers.*.self_attn.{q,k,v,o}_proj", "encoder.layers.*.self_attn.{q,k,v,out}_proj"),
    ("layers.*.{self_attn,mlp}_residual.norm", "encoder.layers.*.{layer_norm1,layer_norm2}"),
    ("layers.*.mlp.{up,down}_proj", "encoder.layers.*.mlp.{fc1,fc2}"),
)
TEXT_ROWS = (
    ("{embed_tokens,position.table}", "embeddings.{token_embedding,position_embedding}"),
    *LAYERS,
    ("norm", "final_layer_norm"),
)
IMAGE_ROWS = (
    ("embed_tokens.class_token", "embeddings.class_embedding", "widen", "widen"),
    ("{embed_tokens.projection,position.table}", "embeddings.{patch_embedding,position_embedding}"),
    *LAYERS,
    ("{embed_norm,pooler.norm}", "{pre_layrnorm,post_layernorm}"),
)
MODEL = (Head("Model", prefixes=BASE),)
CLIP = Architecture(
    "clip",
    "CLIP",
    QkvDualEncoderConfig,
    {
        **renames("projection_dim logit_scale_init_value"),
        **inside("text_config", text_fields("text_config.")),
        **inside("vision_config", IMAGE_FIELDS),
    },
    {f"vision_config.{name}": word for name, word in IMAGE_WORDS.items()},
    (
        *placed(TEXT_ROWS, "text_model.", "text_model."),
        *placed(IMAGE_ROWS, "vision_model.", "vision_model."),
        ("{text_projection,visual_projection,logit_scale}", "{text_projection,visual_projection,logit_scale}"),
    ),
    MODEL,
    free=f"embedding_chunk_size {' '.join(in_parts(renames(f'{UNREAD} label_smoothing')))}",
    inert=f"initializer_factor {' '.join(in_parts(renames(INERT)))}",
    assumed=in_parts(ASSUMED),
)
CLIP_TEXT = Architecture(
    *("clip_text_model", "CLIPText", QkvTextEncoderConfig, text_fields(), {}, TEXT_ROWS, MODEL),
    free=UNREAD,
    inert=INERT,
    assumed=ASSUMED,
)
CLIP_IMAGE = Architecture(
    *("clip_vision_model", "CLIPVision", QkvImageEncoderConfig, IMAGE_FIELDS, IMAGE_WORDS, IMAGE_ROWS, MODEL),
    free=UNREAD,
    inert=INERT,
    assumed=ASSUMED,
)
DUAL_ENCODERS = (CLIP, CLIP_TEXT, CLIP_IMAGE)
