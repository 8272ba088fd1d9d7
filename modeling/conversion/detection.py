"""Conversion of detectors: DETR with a backbone of transformers, as tables.

A backbone is the same module on both sides, so its tensors keep their names, and its config goes over as it is.
"""

from ...configuration.configuration_detection import QkvDetectionConfig
from ..modeling_detection import QkvDetectionForObjectDetection, QkvDetectionModel
from .config import BASE, Architecture, Codec, Fields, Head, Values, activation, both, same
from .encoder_decoder import SIDES
from .weights import Row

BACKBONE = "backbone_config."


def read_backbone(value: object, theirs: Values) -> Values:
    """Read the config of a backbone from the fields that lie flat."""
    return {name.removeprefix(BACKBONE): item for name, item in theirs.items() if name.startswith(BACKBONE)}


def read_auxiliary(value: object, theirs: Values) -> object:
    """Refuse auxiliary losses: for them stock DETR normalises what the next layer reads, unlike the paper."""
    if value:
        raise ValueError("auxiliary_loss=True has it normalise between the layers, which changes its numbers")
    return value


FIELDS: Fields = {
    **SIDES,
    **same("class_cost bbox_cost giou_cost bbox_loss_coefficient giou_loss_coefficient eos_coefficient"),
    **same("is_encoder_decoder"),
    **both({"hidden_size": "d_model", "hidden_act": activation("activation_function")}),
    **both({"residual_dropout": "dropout", **same("attention_dropout activation_dropout")}),
    "decoder.num_queries": "num_queries",
    "encoder.num_channels": "num_channels",
    "encoder.backbone_config": Codec("backbone_config", read_backbone),
    "encoder.position": Codec(
        "position_embedding_type",
        read=lambda kind, theirs: "sinusoidal_2d" if kind == "sine" else kind,
        write=lambda word, ours: "sine",
    ),
    "auxiliary_loss": Codec("auxiliary_loss", read_auxiliary, write=lambda value, ours: False),
}


def stack(side: str) -> tuple[Row, ...]:
    """Return the rows that encoder and decoder share."""
    layer = f"{side}.layers.*"
    return (
        (f"{layer}.self_attn.{{q,k,v,o}}_proj", f"{layer}.self_attn.{{q,k,v,o}}_proj"),
        (f"{layer}.self_attn_residual.norm", f"{layer}.self_attn_layer_norm"),
        (f"{layer}.mlp.{{up,down}}_proj", f"{layer}.mlp.{{fc1,fc2}}"),
        (f"{layer}.mlp_residual.norm", f"{layer}.final_layer_norm"),
    )


DETR = Architecture(
    "detr",
    QkvDetectionConfig,
    FIELDS,
    {
        **both({"norm_first": False}),
        "encoder.final_norm": False,
        "decoder.final_norm": True,
    },
    (
        ("encoder.embed_tokens.backbone.**", "backbone.**"),
        ("encoder.embed_tokens.projection", "input_projection"),
        ("decoder.position.table", "query_position_embeddings"),
        *stack("encoder"),
        *stack("decoder"),
        ("decoder.layers.*.cross_attn.{q,k,v,o}_proj", "decoder.layers.*.encoder_attn.{q,k,v,o}_proj"),
        ("decoder.layers.*.cross_attn_residual.norm", "decoder.layers.*.encoder_attn_layer_norm"),
        ("decoder.norm", "decoder.layernorm"),
    ),
    (
        Head(QkvDetectionModel, "DetrModel", prefixes=BASE),
        Head(
            QkvDetectionForObjectDetection,
            "DetrForObjectDetection",
            (("classifier", "class_labels_classifier"), ("box_head.layers.*", "bbox_predictor.layers.*")),
        ),
    ),
    prefixes=("model.", "model."),
    # Earlier layers are asked in training alone, and no number of places limits the encoder.
    free=frozenset({"auxiliary_loss", "encoder.max_position_embeddings"}),
    # Those of segmentation, what only timm's backbones have, and what the first releases wrote of a text's model.
    inert=frozenset(
        "mask_loss_coefficient dice_loss_coefficient init_xavier_std dilation use_timm_backbone "
        "use_pretrained_backbone backbone backbone_kwargs classifier_dropout max_position_embeddings "
        "scale_embedding".split()
    ),
)
DETECTORS = (DETR,)
