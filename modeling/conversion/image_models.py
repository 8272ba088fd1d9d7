"""Conversion of models of images, as tables: ViT, DeiT, I-JEPA and DINOv2, CLIP and each of its halves, DETR.

In training, ours raises the rate of stochastic depth with the layers where stock DINOv2 has one rate for all. A
backbone is the same module on both sides, so its tensors keep their names, and its config goes over as it is.
"""

from dataclasses import replace

from ...configuration.configuration_detection import QkvDetectionConfig
from ...configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from .config import Architecture, Codec, Fields, Head, Values, both, canonical, one_spelling, output_bias, translated
from .encoder import CLASSIFIER, MODEL, POOLER, POOLING, STACK_FIELDS, UNPOOLED, UNPOOLED_MODEL
from .encoder_decoder import SIDES
from .weights import placed

IMAGE_FIELDS: Fields = {
    **STACK_FIELDS,
    "patch_size": Codec("patch_size", read=lambda size, theirs: canonical(size)),
    "attention_bias": output_bias("qkv_bias"),
}
EMBEDDINGS = (
    ("embed_tokens.{class_token,projection}", "embeddings.{cls_token,patch_embeddings.projection}"),
    ("position.table.weight", "embeddings.position_embeddings", "lead"),
)
IMAGES = Head("ForImageClassification", CLASSIFIER, UNPOOLED)
# The stride of the pixel decoder is the patch size.
PIXELS = Head(
    "ForMaskedImageModeling",
    (("decoder.projection", "decoder.0"),),
    fields={"patch_size": "encoder_stride"},
    free=POOLING,
)
VIT = Architecture(
    "vit",
    QkvImageEncoderConfig,
    {
        **IMAGE_FIELDS,
        "head_act": Codec("pooler_act", lambda act, _: None if act == "tanh" else act, lambda act, _: act or "tanh"),
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
    (MODEL, IMAGES, PIXELS),
    prefix="vit.",
    inert="encoder_stride",
)
TEACHER = (("classifier.{class,distillation}_classifier", "{cls,distillation}_classifier"),)
DEIT = replace(
    VIT,
    model_type="deit",
    words={**VIT.words, "distillation_token": True},
    rows=(*VIT.rows, ("embed_tokens.distillation_token", "embeddings.distillation_token")),
    heads=(
        *VIT.heads,
        replace(IMAGES, rows=TEACHER, words={"pooling": "distilled"}, theirs=f"{IMAGES.ours}WithTeacher"),
    ),
    prefix="deit.",
)
VIT_MSN = replace(
    VIT,
    model_type="vit_msn",
    fields=IMAGE_FIELDS,
    rows=VIT.rows[:-1],
    heads=(UNPOOLED_MODEL, IMAGES),
    inert="",
)
# Without a class token, what a class is read from is the mean.
AVERAGED = {"pooling": "mean"}
IJEPA = replace(
    VIT_MSN,
    model_type="ijepa",
    words={**AVERAGED, "class_token": False},
    rows=(
        ("embed_tokens.projection", "embeddings.patch_embeddings.projection"),
        *(row for row in VIT_MSN.rows if "class_token" not in row[0]),
    ),
    heads=(replace(MODEL, words=AVERAGED), replace(IMAGES, words=AVERAGED)),
    prefix="ijepa.",
    # Of a pooler that neither class has.
    inert="pooler_act pooler_output_size",
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
        **IMAGE_FIELDS,
        **{"layer_scale": "layerscale_value", "mask_token": "use_mask_token"},
        "feed_forward": translated("use_swiglu_ffn", {True: "glu", False: "mlp"}),
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
    (Head("Model", words=UNPOOLED), replace(IMAGES, words={"pooling": "first_mean"})),
    prefix="dinov2.",
    # Of the backbone, which has no counterpart here.
    inert="stage_names out_features out_indices apply_layernorm reshape_hidden_states",
)

# In the first release the id of another token was the end of a text, so the text is read at the highest id instead.
LEGACY_END = 2
TEXT_FIELDS: Fields = {
    "norm_eps": "layer_norm_eps",
    "pooling": Codec(
        "eos_token_id",
        read=lambda end, theirs: "highest" if end == LEGACY_END else "end",
        write=lambda pooling, ours: LEGACY_END if pooling == "highest" else ours["eos_token_id"],
    ),
}
VISION_FIELDS: Fields = {"norm_eps": "layer_norm_eps"}
VISION_WORDS = {"patch_bias": False, "pooling": "first_norm", "embedding_norm": True, "final_norm": False}
# The first releases wrote these into every part.
ASSUMED = {
    **dict.fromkeys("add_cross_attention is_decoder tie_encoder_decoder use_bfloat16".split(), False),
    **{"dropout": 0.0, "tie_word_embeddings": True},
}
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
VISION_ROWS = (
    ("embed_tokens.class_token", "embeddings.class_embedding", "widen", "widen"),
    ("{embed_tokens.projection,position.table}", "embeddings.{patch_embedding,position_embedding}"),
    *LAYERS,
    ("{embed_norm,pooler.norm}", "{pre_layrnorm,post_layernorm}"),
)
CLIP_TEXT = Architecture(
    "clip_text_model",
    QkvTextEncoderConfig,
    TEXT_FIELDS,
    {},
    TEXT_ROWS,
    (Head("Model"),),
    # Starts of training, and the width of another class.
    inert="initializer_factor projection_dim",
    assumed=ASSUMED,
)
CLIP_IMAGE = replace(
    CLIP_TEXT,
    model_type="clip_vision_model",
    family=QkvImageEncoderConfig,
    fields=VISION_FIELDS,
    words=VISION_WORDS,
    rows=VISION_ROWS,
)


def inside(part: str, fields: Fields) -> Fields:
    """Put fields under the name of a part, on both sides."""
    codecs = {name: Codec(theirs) if isinstance(theirs, str) else theirs for name, theirs in fields.items()}
    return {f"{part}.{name}": replace(codec, name=f"{part}.{codec.name}") for name, codec in codecs.items()}


CLIP = Architecture(
    "clip",
    QkvDualEncoderConfig,
    {**inside("text_config", TEXT_FIELDS), **inside("vision_config", VISION_FIELDS)},
    {f"vision_config.{name}": word for name, word in VISION_WORDS.items()},
    (
        *placed(TEXT_ROWS, "text_model.", "text_model."),
        *placed(VISION_ROWS, "vision_model.", "vision_model."),
        ("{text_projection,visual_projection,logit_scale}", "{text_projection,visual_projection,logit_scale}"),
    ),
    (Head("Model"),),
    free="embedding_chunk_size",
    inert="initializer_factor text_config.projection_dim vision_config.projection_dim",
    assumed={f"{part}_config.{name}": value for part in ("text", "vision") for name, value in ASSUMED.items()},
)
# It reads the end of a text whatever its id is.
METACLIP2 = replace(
    CLIP,
    model_type="metaclip_2",
    fields={name: theirs for name, theirs in CLIP.fields.items() if name != "text_config.pooling"},
    words={**CLIP.words, "text_config.pooling": "end"},
    assumed={},
)


def read_backbone(value: object, theirs: Values) -> Values:
    """Read the config of a backbone from the fields that lie flat."""
    named = {name.partition("."): item for name, item in theirs.items()}
    return {name: item for (part, _, name), item in named.items() if part == "backbone_config"}


DETR = Architecture(
    "detr",
    QkvDetectionConfig,
    {
        **SIDES,
        "is_encoder_decoder": "is_encoder_decoder",
        "encoder.backbone_config": Codec("backbone_config", read_backbone),
        "encoder.position": translated("position_embedding_type", {"sine": "sinusoidal_2d"}),
    },
    {**both({"norm_first": False}), "encoder.final_norm": False, "decoder.final_norm": True},
    (
        ("encoder.embed_tokens.backbone.**", "backbone.**"),
        ("encoder.embed_tokens.projection", "input_projection"),
        ("decoder.position.table", "query_position_embeddings"),
        ("**.layers.*.self_attn.{q,k,v,o}_proj", "**.layers.*.self_attn.{q,k,v,o}_proj"),
        ("**.layers.*.{self_attn,mlp}_residual.norm", "**.layers.*.{self_attn,final}_layer_norm"),
        ("**.layers.*.mlp.{up,down}_proj", "**.layers.*.mlp.{fc1,fc2}"),
        ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.layers.*.encoder_attn.{q,k,v,o}_proj"),
        ("decoder.layers.*.cross_attn_residual.norm", "decoder.layers.*.encoder_attn_layer_norm"),
        ("decoder.norm", "decoder.layernorm"),
    ),
    (
        Head("Model"),
        Head(
            "ForObjectDetection",
            (("classifier", "class_labels_classifier"), ("box_head.layers.*", "bbox_predictor.layers.*")),
        ),
    ),
    prefix="model.",
    # Earlier layers are asked in training alone, where stock DETR then normalises the input of the next layer, unlike
    # the paper; no number of places limits the encoder.
    free="auxiliary_loss encoder.max_position_embeddings",
    # Fields of segmentation, of timm's backbones, and of a text's model, which the first releases wrote.
    inert="mask_loss_coefficient dice_loss_coefficient init_xavier_std dilation use_timm_backbone "
    "use_pretrained_backbone backbone backbone_kwargs classifier_dropout max_position_embeddings scale_embedding",
)

IMAGE_MODELS = (DEIT, VIT, VIT_MSN, IJEPA, DINOV2, CLIP, METACLIP2, CLIP_TEXT, CLIP_IMAGE, DETR)
