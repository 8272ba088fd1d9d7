"""Conversion of image encoders: ViT, DeiT and DINOv2, as tables.

In training, ours raises the rate of stochastic depth with the layers where stock DINOv2 has one rate for all.
"""

from dataclasses import replace

from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from .config import BASE, Architecture, Codec, Fields, Head, Values, canonical, one_spelling, output_bias, renames
from .encoder import CLASSIFIER, MODELS, POOLER, STACK_FIELDS, UNPOOLED

IMAGE_FIELDS: Fields = {
    **STACK_FIELDS,
    **renames("image_size num_channels"),
    "patch_size": Codec("patch_size", read=lambda size, theirs: canonical(size)),
    "attention_bias": output_bias("qkv_bias"),
}
EMBEDDINGS = (
    ("embed_tokens.{class_token,projection}", "embeddings.{cls_token,patch_embeddings.projection}"),
    ("position.table.weight", "embeddings.position_embeddings", "lead"),
)
IMAGES = Head("ForImageClassification", CLASSIFIER, UNPOOLED)
# The stride of the pixel decoder is the patch size.
PIXELS = Head("ForMaskedImageModeling", (("decoder.projection", "decoder.0"),), fields={"patch_size": "encoder_stride"})
VIT = Architecture(
    "vit",
    "ViT",
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
    (
        *EMBEDDINGS,
        ("{embed_tokens.mask_token,norm}", "{embeddings.mask_token,layernorm}"),
        ("layers.*.self_attn.{q,k,v,o}_proj", "layers.*.attention.{q,k,v,o}_proj"),
        ("layers.*.{self_attn,mlp}_residual.norm", "layers.*.layernorm_{before,after}"),
        ("layers.*.mlp.{up,down}_proj", "layers.*.mlp.{fc1,fc2}"),
        POOLER,
    ),
    (*MODELS, IMAGES, PIXELS),
    prefixes=("model.", "vit."),
    inert="encoder_stride",
)
TEACHER = (("classifier.{class,distillation}_classifier", "{cls,distillation}_classifier"),)
DEIT = replace(
    VIT,
    model_type="deit",
    name="DeiT",
    words={**VIT.words, "distillation_token": True},
    rows=(*VIT.rows, ("embed_tokens.distillation_token", "embeddings.distillation_token")),
    heads=(
        *VIT.heads,
        replace(IMAGES, rows=TEACHER, words={"pooling": "distilled"}, theirs=f"{IMAGES.ours}WithTeacher"),
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
    "Dinov2",
    QkvImageEncoderConfig,
    {
        **IMAGE_FIELDS,
        **renames("drop_path_rate layer_scale=layerscale_value mask_token=use_mask_token"),
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
            read=lambda act, theirs: "silu" if theirs["use_swiglu_ffn"] else one_spelling(act),
            write=lambda act, ours: "gelu" if ours["feed_forward"] == "glu" else act,
        ),
    },
    # No dropout stands behind its branches.
    {**UNPOOLED, "interpolate_positions": True},
    (
        *EMBEDDINGS,
        ("embed_tokens.mask_token", "embeddings.mask_token", "widen"),
        ("layers.*.self_attn.{q,k,v,o}_proj", "encoder.layer.*.attention.{q,k,v,o}_proj"),
        ("layers.*.{self_attn,mlp}_residual.norm", "encoder.layer.*.{norm1,norm2}"),
        ("layers.*.{self_attn,mlp}_residual.layer_scale", "encoder.layer.*.{layer_scale1,layer_scale2}.lambda1"),
        # Without a gate the row after it finds the other two.
        ("layers.*.mlp.{gate,up,down}_proj", "encoder.layer.*.mlp.{gate,up,down}_proj", "together"),
        ("layers.*.mlp.{up,down}_proj", "encoder.layer.*.mlp.{fc1,fc2}"),
        ("norm", "layernorm"),
    ),
    (Head("Model", words=UNPOOLED, prefixes=BASE), replace(IMAGES, words={"pooling": "first_mean"})),
    prefixes=("model.", "dinov2."),
    # Of the backbone, which has no counterpart here.
    inert="stage_names out_features out_indices apply_layernorm reshape_hidden_states",
)

IMAGE_ENCODERS = (DEIT, VIT, DINOV2)
