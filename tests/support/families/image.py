"""Official encoders over images, every class of each at a tiny size."""

from families.base import LABELS, SIZES, Family, Inputs, Row, image_labels, images, masked_patches, oblong_labels

DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
HEADS: dict[str, Inputs] = {
    "Model": images,
    "ForImageClassification": image_labels,
    "ForMaskedImageModeling": masked_patches,
}
IMAGE = {**SIZES, **DROPOUT, "image_size": 12, "patch_size": 4, "encoder_stride": 4, "num_labels": LABELS}

VIT = Family("vit", "ViT", HEADS, {**IMAGE, "initializer_range": 0.1}, {"hidden_act": "relu"}, sides=("none",))
DEIT = Family(
    "deit",
    "DeiT",
    {**HEADS, "ForImageClassificationWithTeacher": images},
    {**IMAGE, "initializer_range": 0.1},
    {"norm_eps": 1e-1},
    sides=("none",),
)

DINOV2 = Family(
    "dinov2",
    "Dinov2",
    {"Model": masked_patches, "ForImageClassification": oblong_labels},
    {
        **{name: value for name, value in IMAGE.items() if name not in ("intermediate_size", "encoder_stride")},
        **{"mlp_ratio": 2, "layerscale_value": 0.3, "initializer_range": 0.1, "drop_path_rate": 0.1},
    },
    {"norm_eps": 1e-1},
    sides=("none",),
)

FAMILIES = [VIT, DEIT, DINOV2]
VARIANTS = [
    Row(VIT, "Model", {"norm_eps": 1e-1}, options={"add_pooling_layer": False}, name="no pooler"),
    VIT.variant("ForImageClassification", "wide", image_size=[12, 12], patch_size=[4, 4], encoder_stride=16),
    VIT.variant("Model", "relu pooler", {"head_act": None}, pooler_act="relu", qkv_bias=False),
    DEIT.variant("Model", "relu pooler", {"head_act": None}, pooler_act="relu", qkv_bias=False),
    DINOV2.variant("ForImageClassification", "gated", {"hidden_act": "relu"}, use_swiglu_ffn=True, mlp_ratio=3),
    DINOV2.variant("Model", "unbiased", qkv_bias=False, patch_size=[4, 4]),
]
