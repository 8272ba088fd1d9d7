"""Detectors: DETR, an encoder over a feature map and a decoder that finds a set of objects in it."""

from copy import deepcopy
from dataclasses import field
from math import inf
from typing import ClassVar

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from .axes import DetectionFrontendName, ImagePositionName, ObjectQueryPositionName
from .configuration_attention import check_grid
from .configuration_base import auto_classes_of
from .configuration_composite import OF_TRANSFORMERS, CompositeConfig, check_same_width, part_property
from .configuration_stack import BranchConfig, TextGridConfig
from .fields import Fields, Part, at_least, bounded, positive

# What a config says of a file or a run rather than of a backbone.
BESIDE = OF_TRANSFORMERS | {"_name_or_path", "output_attentions"}


def weight(default: float) -> float:
    """Declare the weight of one part of a loss or cost beside the others; 0 leaves it out."""
    return bounded(default, lambda value: 0 <= value < inf, "be finite and not negative")


class QkvDetectionEncoderConfig(BranchConfig, TextGridConfig):
    """Configure the encoder of a detector: the places of an image of any size -> bidirectional stack (DETR).

    Args:
        backbone_config: Config of the backbone whose last feature map is read, a model of transformers such as
            `{"model_type": "resnet"}`, of which the last of `out_features` counts. None reads patches instead.
        patch_size: Side in pixels of the patches that are mapped linearly where there is no backbone.
        num_channels: Number of colour channels.
        position: Position encoding over rows and columns: `sinusoidal_2d` is added to queries and keys in every layer;
            `sinusoidal_2d_and_input` also to the input of the first layer; `none`.
    """

    model_type = "qkv_detection_encoder"
    class_token: ClassVar[bool] = False
    distillation_token: ClassVar[bool] = False
    num_register_tokens: ClassVar[int] = 0
    mask_token: ClassVar[bool] = False
    patch_bias: ClassVar[bool] = True

    backbone_config: Fields | None = field(default_factory=lambda: {"model_type": "resnet"})
    patch_size: int = at_least(1, 16)
    num_channels: int = at_least(1, 3)
    position: ImagePositionName = "sinusoidal_2d"  # type: ignore[assignment]  # other words than other stacks have

    def __post_init__(self, **kwargs: object) -> None:
        if self.backbone_config is not None:
            self.backbone_config = complete_backbone(self.backbone_config, self.num_channels)
        super().__post_init__(**kwargs)

    @property
    def frontend(self) -> DetectionFrontendName:
        """Kind of frontend: a backbone's feature map, or a linear map of patches."""
        return "patches" if self.backbone_config is None else "feature_map"

    @property
    def backbone(self) -> PreTrainedConfig | None:
        """Config of the backbone, for transformers; None where patches are mapped instead."""
        return None if self.backbone_config is None else AutoConfig.for_model(**self.backbone_config)

    def validate_grid(self) -> None:
        """Check that no pattern wants rows of one length, and that sines and cosines of rows and columns are pairs."""
        check_grid(self, "images of any size")
        if self.position != "none" and self.hidden_size % 4:
            position, width = f"position={self.position!r}", f"hidden_size={self.hidden_size}"
            raise ValueError(f"{position} has sines and cosines of rows and columns; {width} must be a multiple of 4")


def complete_backbone(given: Fields, num_channels: int) -> Fields:
    """Return every field of a backbone's config, so that no later default changes a saved one."""
    values = {name: value for name, value in deepcopy(given).items() if name not in BESIDE}
    kind, channels = values.pop("model_type", None), values.setdefault("num_channels", num_channels)
    if channels != num_channels:
        raise ValueError(f"num_channels={channels} of backbone_config and num_channels={num_channels} differ")
    config = CONFIG_MAPPING[kind](**values) if kind in CONFIG_MAPPING and kind != "timm_backbone" else None
    if config is None or not hasattr(config, "out_features"):
        raise ValueError(
            f"model_type={kind!r} of backbone_config is no backbone of transformers; take one such as 'resnet', or "
            "revision 'no_timm' of a checkpoint with timm"
        )
    return {name: value for name, value in config.to_dict().items() if name not in BESIDE}


class QkvDetectionDecoderConfig(BranchConfig, TextGridConfig):
    """Configure the decoder of a detector: object queries that attend to each other and to the image (DETR).

    Args:
        num_queries: Number of object queries, which is the largest number of objects that can be found.
        position: Always `object_queries`: a learned embedding of each query, added in every layer.
        max_position_embeddings: Number of object queries; follows from `num_queries`.
    """

    model_type = "qkv_detection_decoder"
    frontend: ClassVar[DetectionFrontendName] = "object_queries"
    cross_attention: ClassVar[bool] = True

    num_queries: int = at_least(1, 100)
    position: ObjectQueryPositionName = "object_queries"  # type: ignore[assignment]  # a word of its own

    def __post_init__(self, **kwargs: object) -> None:
        self.max_position_embeddings: int = self.num_queries
        super().__post_init__(**kwargs)

    def validate_grid(self) -> None:
        """Check that no pattern wants rows and columns."""
        check_grid(self, "object queries")


class QkvDetectionConfig(CompositeConfig):
    """Configure a detector: an encoder over an image and a decoder of object queries (DETR).

    Fields of `QkvDetectionEncoderConfig` and `QkvDetectionDecoderConfig` may be given flat for both. Objects and
    queries are matched so that the sum of the three costs is least.

    Args:
        class_cost: Weight of the class in the matching.
        bbox_cost: Weight of the L1 distance of boxes in the matching.
        giou_cost: Weight of the generalized intersection over union in the matching.
        bbox_loss_coefficient: Weight of the L1 distance of boxes in the loss.
        giou_loss_coefficient: Weight of the generalized intersection over union in the loss.
        eos_coefficient: Weight in the loss of queries that no object is matched to.
        auxiliary_loss: Whether the predictions of all layers but the last are trained as well.
    """

    model_type = "qkv_detection"
    sub_configs_defaults = {"encoder": QkvDetectionEncoderConfig, "decoder": QkvDetectionDecoderConfig}
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of("detection", "QkvDetection", "ObjectDetection")

    encoder: Part[QkvDetectionEncoderConfig] = None  # type: ignore[assignment]  # made in __post_init__
    decoder: Part[QkvDetectionDecoderConfig] = None  # type: ignore[assignment]
    class_cost: float | int = weight(1)
    bbox_cost: float | int = weight(5)
    giou_cost: float | int = weight(2)
    bbox_loss_coefficient: float | int = weight(5)
    giou_loss_coefficient: float | int = weight(2)
    eos_coefficient: float | int = positive(0.1)
    auxiliary_loss: bool = False
    initializer_range: float | int = positive(0.02)
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: object) -> None:
        own = {"norm_position": "after", "hidden_act": "relu", "initializer_range": self.initializer_range}
        super().__post_init__(**self.make_parts(kwargs, encoder=own, decoder={"final_norm": True, **own}))

    hidden_size = part_property("hidden_size", "decoder", "encoder")
    num_hidden_layers = part_property("num_hidden_layers", "decoder")
    num_queries = part_property("num_queries", "decoder")

    def validate_parts(self) -> None:
        """Check that the decoder can read the encoder's output, and that something decides the matching."""
        check_same_width(self.encoder, self.decoder)
        if not (self.class_cost or self.bbox_cost or self.giou_cost):
            raise ValueError("class_cost, bbox_cost and giou_cost are all 0, which matches anything; set one of them")
