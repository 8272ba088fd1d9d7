"""Conversion of image encoders: ViT, DeiT and DINOv2, as tables.

In training, ours raises the rate of stochastic depth with the layers where stock DINOv2 has one rate for all.
"""

from dataclasses import replace

from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from ..modeling_image_encoder import (
    QkvImageEncoderForImageClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)
from .config import BASE, Architecture, Codec, Fields, Head, Values, activation, canonical, same
from .encoder import CLASSIFIER, STACK_FIELDS, UNPOOLED, base

IMAGE_FIELDS: Fields = {
    **STACK_FIELDS,
    **same("image_size num_channels"),
    "patch_size": Codec("patch_size", read=lambda size, theirs: canonical(size)),
    # `qkv_bias` leaves out the first three of the four biases.
    "attention_bias": Codec(
        "qkv_bias", lambda biased, theirs: biased or ["o_proj"], lambda biases, ours: biases is True
    ),
}
VIT_ROWS = (
    ("embed_tokens.class_token", "embeddings.cls_token"),
    ("embed_tokens.mask_token", "embeddings.mask_token"),
    ("embed_tokens.projection", "embeddings.patch_embeddings.projection"),
    ("position.table.weight", "embeddings.position_embeddings", "lead"),
    ("layers.*.self_attn.{q,k,v}_proj", "layers.*.attention.{q,k,v}_proj"),
    ("layers.*.self_attn.o_proj", "layers.*.attention.o_proj"),
    ("layers.*.self_attn_residual.norm", "layers.*.layernorm_before"),
    ("layers.*.mlp.{up,down}_proj", "layers.*.mlp.{fc1,fc2}"),
    ("layers.*.mlp_residual.norm", "layers.*.layernorm_after"),
    ("norm", "layernorm"),
    ("pooler.dense", "pooler.dense"),
)


def image_heads(name: str) -> tuple[Head, ...]:
    """Return the classes in which ViT and DeiT do not differ; the stride of the pixel decoder is the patch size."""
    pixels, stride = (("decoder.projection", "decoder.0"),), {"patch_size": "encoder_stride"}
    return (
        *base(f"{name}Model", QkvImageEncoderModel),
        Head(QkvImageEncoderForImageClassification, f"{name}ForImageClassification", CLASSIFIER, UNPOOLED),
        Head(QkvImageEncoderForMaskedImageModeling, f"{name}ForMaskedImageModeling", pixels, fields=stride),
    )


VIT = Architecture(
    "vit",
    QkvImageEncoderConfig,
    {
        **IMAGE_FIELDS,
        "head_act": Codec(
            "pooler_act",
            read=lambda act, theirs: None if act == "tanh" else act,
            write=lambda act, ours: act or "tanh",
        ),
    },
    UNPOOLED,
    VIT_ROWS,
    image_heads("ViT"),
    prefixes=("model.", "vit."),
    inert=frozenset({"encoder_stride"}),
)
DEIT = replace(
    VIT,
    model_type="deit",
    words={**VIT.words, "distillation_token": True},
    rows=(*VIT_ROWS, ("embed_tokens.distillation_token", "embeddings.distillation_token")),
    heads=(
        *image_heads("DeiT"),
        Head(
            QkvImageEncoderForImageClassification,
            "DeiTForImageClassificationWithTeacher",
            (("classifier.{class,distillation}_classifier", "{cls,distillation}_classifier"),),
            {"pooling": "distilled"},
        ),
    ),
    prefixes=("model.", "deit."),
)


def inner_width(width: int, ratio: int, *, gated: bool) -> int:
    """Return the feed-forward's width; a gate's third matrix is paid for by a third of it, rounded up to eights."""
    return (int(width * ratio * 2 / 3) + 7) // 8 * 8 if gated else width * ratio


def ratio_of(inner: int, ours: Values) -> int:
    """Return the whole ratio that gives this width, or the usual one where none does."""
    gated = ours["feed_forward"] == "glu"
    ratios = range(1, 2 + 2 * inner // ours["hidden_size"])
    return next((ratio for ratio in ratios if inner_width(ours["hidden_size"], ratio, gated=gated) == inner), 4)


DINOV2 = Architecture(
    "dinov2",
    QkvImageEncoderConfig,
    {
        **{name: theirs for name, theirs in IMAGE_FIELDS.items() if name not in ("intermediate_size", "hidden_act")},
        "drop_path_rate": "drop_path_rate",
        "layer_scale": "layerscale_value",
        "mask_token": "use_mask_token",
        "feed_forward": Codec(
            "use_swiglu_ffn",
            read=lambda gated, theirs: "glu" if gated else "mlp",
            write=lambda kind, ours: kind == "glu",
        ),
        "intermediate_size": Codec(
            "mlp_ratio",
            read=lambda ratio, theirs: inner_width(theirs["hidden_size"], ratio, gated=theirs["use_swiglu_ffn"]),
            write=ratio_of,
        ),
        # The gate's is always SiLU, whatever the config says.
        "hidden_act": Codec(
            "hidden_act",
            read=lambda act, theirs: "silu" if theirs["use_swiglu_ffn"] else activation("hidden_act").read(act, theirs),
            write=lambda act, ours: "gelu" if ours["feed_forward"] == "glu" else act,
        ),
    },
    # No dropout stands behind its branches.
    {**UNPOOLED, "interpolate_positions": True},
    (
        ("embed_tokens.class_token", "embeddings.cls_token"),
        ("embed_tokens.mask_token", "embeddings.mask_token", "widen"),
        ("embed_tokens.projection", "embeddings.patch_embeddings.projection"),
        ("position.table.weight", "embeddings.position_embeddings", "lead"),
        ("layers.*.self_attn.{q,k,v}_proj", "encoder.layer.*.attention.{q,k,v}_proj"),
        ("layers.*.self_attn.o_proj", "encoder.layer.*.attention.o_proj"),
        ("layers.*.self_attn_residual.norm", "encoder.layer.*.norm1"),
        ("layers.*.self_attn_residual.layer_scale", "encoder.layer.*.layer_scale1.lambda1"),
        # A gate takes the other two along; without one the row after it finds them.
        ("layers.*.mlp.{gate,up,down}_proj", "encoder.layer.*.mlp.{gate,up,down}_proj"),
        ("layers.*.mlp.{up,down}_proj", "encoder.layer.*.mlp.{fc1,fc2}"),
        ("layers.*.mlp_residual.norm", "encoder.layer.*.norm2"),
        ("layers.*.mlp_residual.layer_scale", "encoder.layer.*.layer_scale2.lambda1"),
        ("norm", "layernorm"),
    ),
    (
        Head(QkvImageEncoderModel, "Dinov2Model", words=UNPOOLED, prefixes=BASE),
        Head(
            QkvImageEncoderForImageClassification,
            "Dinov2ForImageClassification",
            CLASSIFIER,
            {"pooling": "first_mean"},
        ),
    ),
    prefixes=("model.", "dinov2."),
    # Of the backbone, which has no counterpart here.
    inert=frozenset("stage_names out_features out_indices apply_layernorm reshape_hidden_states".split()),
)

IMAGE_ENCODERS = (DEIT, VIT, DINOV2)
