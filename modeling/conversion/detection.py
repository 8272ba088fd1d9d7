"""Conversion of detectors: DETR with a backbone of transformers, as a table.

A backbone is the same module on both sides, so its tensors keep their names, and its config goes over as it is.
"""

from ...configuration.configuration_detection import QkvDetectionConfig
from .config import BASE, Architecture, Codec, Head, Values, both, renames
from .encoder_decoder import SIDES

BACKBONE = "backbone_config."


def read_backbone(value: object, theirs: Values) -> Values:
    """Read the config of a backbone from the fields that lie flat."""
    return {name.removeprefix(BACKBONE): item for name, item in theirs.items() if name.startswith(BACKBONE)}


def read_auxiliary(value: object, theirs: Values) -> object:
    """Refuse auxiliary losses: with them stock DETR normalises the input of the next layer, unlike the paper."""
    if value:
        raise ValueError("auxiliary_loss=True has it normalise between the layers, which changes its numbers")
    return value


DETR = Architecture(
    "detr",
    "Detr",
    QkvDetectionConfig,
    {
        **SIDES,
        **renames("class_cost bbox_cost giou_cost bbox_loss_coefficient giou_loss_coefficient eos_coefficient"),
        **renames("is_encoder_decoder decoder.num_queries=num_queries encoder.num_channels=num_channels"),
        **both(renames("hidden_size=d_model hidden_act=activation_function residual_dropout=dropout")),
        **both(renames("attention_dropout activation_dropout")),
        "encoder.backbone_config": Codec("backbone_config", read_backbone),
        "encoder.position": Codec(
            "position_embedding_type",
            read=lambda kind, theirs: "sinusoidal_2d" if kind == "sine" else kind,
            write=lambda word, ours: "sine",
        ),
        "auxiliary_loss": Codec("auxiliary_loss", read_auxiliary, write=lambda value, ours: False),
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
        Head("Model", prefixes=BASE),
        Head(
            "ForObjectDetection",
            (("classifier", "class_labels_classifier"), ("box_head.layers.*", "bbox_predictor.layers.*")),
        ),
    ),
    prefixes=("model.", "model."),
    # Earlier layers are asked in training alone, and no number of places limits the encoder.
    free="auxiliary_loss encoder.max_position_embeddings",
    # Fields of segmentation, of timm's backbones, and of a text's model, which the first releases wrote.
    inert="mask_loss_coefficient dice_loss_coefficient init_xavier_std dilation use_timm_backbone "
    "use_pretrained_backbone backbone backbone_kwargs classifier_dropout max_position_embeddings scale_embedding",
)
DETECTORS = (DETR,)
