"""Conversion of models of images, as tables: ViT, DeiT, I-JEPA and DINOv2, CLIP, SigLIP and their halves, DETR.

In training, ours raises the rate of stochastic depth with the layers where stock DINOv2 has one rate for all, drops out
weights of SigLIP's pooling, and leaves out DINOv3's random scale of coordinates. A backbone is the same module on both
sides, so its tensors keep their names, and its config goes over as it is.
"""

from dataclasses import replace

from ...configuration.configuration_detection import QkvDetectionConfig
from ...configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from .config import Architecture, Codec, Fields, Head, Values, both, canonical, one_spelling, output_bias, translated
from .decoder import has_bias
from .encoder import CLASSIFIER, MODEL, POOLER, POOLING, STACK_FIELDS, UNPOOLED, UNPOOLED_MODEL
from .encoder_decoder import SIDES
from .weights import ROWS, Rows, placed

IMAGE_SIZES = {"patch_size": Codec("patch_size", read=lambda size, theirs: canonical(size))}
IMAGE_FIELDS: Fields = {**STACK_FIELDS, **IMAGE_SIZES, "attention_bias": output_bias("qkv_bias")}
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
    (*ROWS["vit"], POOLER),
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
    rows=ROWS["vit"],
    heads=(UNPOOLED_MODEL, IMAGES),
    inert="",
)
# Without a class token, what a class is read from is the mean.
AVERAGED = {"pooling": "mean"}
IJEPA = replace(
    VIT_MSN,
    model_type="ijepa",
    words={**AVERAGED, "class_token": False},
    rows=ROWS["ijepa"],
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
    ROWS["dinov2"],
    (Head("Model", words=UNPOOLED), replace(IMAGES, words={"pooling": "first_mean"})),
    prefix="dinov2.",
    # Of the backbone, which has no counterpart here.
    inert="stage_names out_features out_indices apply_layernorm reshape_hidden_states",
)
DINOV2_REGISTERS = replace(
    DINOV2,
    model_type="dinov2_with_registers",
    fields={name: theirs for name, theirs in DINOV2.fields.items() if name != "mask_token"},
    words={**UNPOOLED, "mask_token": True},
    rows=(*ROWS["dinov2"], ("embed_tokens.register_tokens", "embeddings.register_tokens")),
    prefix="dinov2_with_registers.",
)
DINOV3 = replace(
    DINOV2_REGISTERS,
    model_type="dinov3_vit",
    fields={
        **IMAGE_SIZES,
        **{"norm_eps": "layer_norm_eps", "layer_scale": "layerscale_value"},
        "feed_forward": translated("use_gated_mlp", {True: "glu", False: "mlp"}),
        "rope_parameters": Codec(
            "rope_theta",
            lambda theta, _: {"rope_type": "default", "rope_theta": theta},
            lambda rope, _: rope["rope_theta"],
        ),
        "attention_bias": Codec(
            "query_bias",
            lambda biased, theirs: ["q_proj"] * biased + ["v_proj"] * theirs["value_bias"] + ["o_proj"],
            lambda biases, _: has_bias(biases, "q_proj"),
        ),
        # Their second switch has no field of ours; it stands beside one that never changes.
        "position": Codec("value_bias", write=lambda _, ours: has_bias(ours["attention_bias"], "v_proj")),
    },
    words={**DINOV2_REGISTERS.words, "position": "rope_2d", "interpolate_positions": True},
    rows=ROWS["dinov3"],
    heads=DINOV2.heads[:1],
    inert=f"{DINOV2.inert} pos_embed_shift pos_embed_jitter pos_embed_rescale",
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
CLIP_TEXT = Architecture(
    "clip_text_model",
    QkvTextEncoderConfig,
    TEXT_FIELDS,
    {},
    ROWS["clip_text"],
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
    rows=ROWS["clip_vision"],
)


SIGLIP_TEXT = replace(
    CLIP_TEXT,
    model_type="siglip_text_model",
    fields=VISION_FIELDS,
    words={"causal": False, "pooling": "last"},
    rows=(*ROWS["clip_text"], ("pooler.dense", "head")),
    free="initializer_range",
)
SIGLIP_IMAGE = replace(
    SIGLIP_TEXT,
    model_type="siglip_vision_model",
    family=QkvImageEncoderConfig,
    # Without its head it returns nothing that is pooled.
    fields={**IMAGE_SIZES, **VISION_FIELDS, "pooling": translated("vision_use_head", {True: "attention"})},
    words={"class_token": False},
    rows=(*ROWS["siglip_pooling"], *ROWS["clip_vision"]),
)


def dual(
    model_type: str, text: Architecture, image: Architecture, rows: Rows = ROWS["clip"], free: str = "", **words: object
) -> Architecture:
    """Join encoders of texts and images; rows, free fields and words are of the rest."""
    halves = (("text_config.", text), ("vision_config.", image))
    fields = [(part, *each) for part, half in halves for each in half.fields.items()]
    codecs = [(part, name, Codec(each) if isinstance(each, str) else each) for part, name, each in fields]
    unread = " ".join(part + name for part, half in halves for name in half.free.split())
    return Architecture(
        model_type,
        QkvDualEncoderConfig,
        {part + name: replace(codec, name=part + codec.name) for part, name, codec in codecs},
        words | {part + name: word for part, half in halves for name, word in half.words.items()},
        (*placed(text.rows, *["text_model."] * 2), *placed(image.rows, *["vision_model."] * 2), *rows),
        (Head("Model"),),
        free=f"embedding_chunk_size {free} {unread}",
        inert="initializer_factor text_config.projection_dim vision_config.projection_dim",
        assumed={part + name: value for part, half in halves for name, value in half.assumed.items()},
    )


CLIP = dual("clip", CLIP_TEXT, CLIP_IMAGE)
# It reads the end of a text whatever its id is.
END_TEXT = replace(CLIP_TEXT, fields=VISION_FIELDS, words={"pooling": "end"})
METACLIP2 = dual("metaclip_2", END_TEXT, CLIP_IMAGE)
SIGMOIDS = {"projection_dim": None, "logit_bias": True}
SIGLIP = dual("siglip", SIGLIP_TEXT, SIGLIP_IMAGE, ROWS["siglip"], "logit_scale_init_value", **SIGMOIDS)


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
    {**both({"norm_position": "after"}), "encoder.final_norm": False, "decoder.final_norm": True},
    ROWS["detr"],
    (Head("Model"), Head("ForObjectDetection", ROWS["detr_boxes"])),
    prefix="model.",
    # Earlier layers are asked in training alone, where stock DETR then normalises the input of the next layer, unlike
    # the paper; no number of places limits the encoder.
    free="auxiliary_loss encoder.max_position_embeddings",
    # Fields of segmentation, of timm's backbones, and of a text's model, which the first releases wrote.
    inert="mask_loss_coefficient dice_loss_coefficient init_xavier_std dilation use_timm_backbone "
    "use_pretrained_backbone backbone backbone_kwargs classifier_dropout max_position_embeddings scale_embedding",
)

# The pooling of SigLIP is none that a base model of ViT may come without.
DUALS = (SIGLIP_IMAGE, SIGLIP_TEXT, SIGLIP, CLIP, METACLIP2, CLIP_TEXT, CLIP_IMAGE)
IMAGE_MODELS = (*DUALS, DEIT, VIT, VIT_MSN, IJEPA, DINOV2, DINOV2_REGISTERS, DINOV3, DETR)
