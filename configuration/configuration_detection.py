"""Detectors: DETR, an encoder over a feature map and a decoder that finds a set of objects in it."""

from copy import deepcopy
from dataclasses import field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from transformers import CONFIG_MAPPING, PreTrainedConfig

from .axes import DetectionFrontendName, ImagePositionName, ObjectQueryPositionName
from .configuration_attention import check_grid
from .configuration_base import at_least, bounded, checked, positive
from .configuration_composite import CompositeConfig, check_same_width, part_property
from .configuration_stack import StackConfig

# What a config says of a file or a run rather than of a backbone.
BESIDE = frozenset(
    "_name_or_path transformers_version architectures dtype id2label label2id problem_type output_hidden_states "
    "output_attentions return_dict chunk_size_feed_forward is_encoder_decoder".split()
)


def weight(default: float) -> float:
    """Declare the weight of one part of a loss or cost beside the others; 0 leaves it out."""
    number: float = bounded(default, lambda value: 0 <= value < float("inf"), "be finite and not negative")
    return number


@checked
class QkvDetectionEncoderConfig(StackConfig):
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
    has_padding_inside: ClassVar[bool] = True
    class_token: ClassVar[bool] = False
    distillation_token: ClassVar[bool] = False
    mask_token: ClassVar[bool] = False
    patch_bias: ClassVar[bool] = True

    backbone_config: dict[str, Any] | None = field(default_factory=lambda: {"model_type": "resnet"})
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
        if self.backbone_config is None:
            return None
        values = dict(self.backbone_config)
        return CONFIG_MAPPING[values.pop("model_type")](**values)

    def validate_grid(self) -> None:
        """Check that no pattern wants rows of one length."""
        check_grid(self, "images of any size")

    def validate_sinusoids(self) -> None:
        """Check that rows and columns have as many components each, in pairs of a sine and a cosine."""
        if self.position != "none" and self.hidden_size % 4:
            raise ValueError(
                f"position={self.position!r} pairs sines with cosines for rows and for columns, so "
                f"hidden_size={self.hidden_size} must be a multiple of 4"
            )


def complete_backbone(given: dict[str, Any], num_channels: int) -> dict[str, Any]:
    """Return every field of a backbone's config, so that no later default changes a saved one."""
    values = {name: value for name, value in deepcopy(given).items() if name not in BESIDE}
    kind = values.pop("model_type", None)
    if kind == "timm_backbone":
        raise ValueError(
            "backbone_config of model_type='timm_backbone' needs timm, which qkv does not use; take the checkpoint's "
            "revision 'no_timm', or a backbone of transformers such as 'resnet'"
        )
    if kind not in CONFIG_MAPPING:
        close = get_close_matches(str(kind), CONFIG_MAPPING, n=1) or ["resnet"]
        raise ValueError(f"model_type={kind!r} of backbone_config is none of transformers'; did you mean {close[0]!r}?")
    channels = values.setdefault("num_channels", num_channels)
    if channels != num_channels:
        raise ValueError(
            f"backbone_config reads num_channels={channels}, but num_channels={num_channels}; make them one"
        )
    config = CONFIG_MAPPING[kind](**values)
    if not hasattr(config, "out_features"):
        raise ValueError(f"model_type={kind!r} of backbone_config is no backbone; take one such as 'resnet'")
    return {name: value for name, value in config.to_dict().items() if name not in BESIDE}


@checked
class QkvDetectionDecoderConfig(StackConfig):
    """Configure the decoder of a detector: object queries that attend to each other and to the image (DETR).

    Args:
        num_queries: Number of object queries, which is the largest number of objects that can be found.
        position: Always `object_queries`: zeros are the input, and a learned embedding of each query is added in every
            layer.
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


if TYPE_CHECKING:
    EncoderPart = QkvDetectionEncoderConfig
    DecoderPart = QkvDetectionDecoderConfig
else:
    # What may be given; what is read afterwards is always a config.
    EncoderPart = QkvDetectionEncoderConfig | dict | None
    DecoderPart = QkvDetectionDecoderConfig | dict | None


@checked
class QkvDetectionConfig(CompositeConfig):
    """Configure a detector: an encoder over an image and a decoder of object queries (DETR).

    Fields of `QkvDetectionEncoderConfig` and `QkvDetectionDecoderConfig` may be given flat for both. Objects and
    queries are matched so that the sum of the three costs is least.

    Args:
        encoder: Fields of the encoder that are not those given flat, or its whole config.
        decoder: Fields of the decoder that are not those given flat, or its whole config.
        class_cost: Weight of the class in the matching.
        bbox_cost: Weight of the L1 distance of boxes in the matching.
        giou_cost: Weight of the generalized intersection over union in the matching.
        bbox_loss_coefficient: Weight of the L1 distance of boxes in the loss.
        giou_loss_coefficient: Weight of the generalized intersection over union in the loss.
        eos_coefficient: Weight in the loss of queries that no object is matched to.
        auxiliary_loss: Whether the predictions of all layers but the last are trained as well.
        initializer_range: Standard deviation of initial weights.
        is_encoder_decoder: Always True, as in DETR.
    """

    model_type = "qkv_detection"
    sub_configs_defaults = {
        "encoder": QkvDetectionEncoderConfig,
        "decoder": QkvDetectionDecoderConfig,
    }
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_detection.QkvDetectionConfig",
        "AutoModel": "modeling_detection.QkvDetectionModel",
        "AutoModelForObjectDetection": "modeling_detection.QkvDetectionForObjectDetection",
    }

    encoder: EncoderPart = None  # type: ignore[assignment]  # made in __post_init__
    decoder: DecoderPart = None  # type: ignore[assignment]  # made in __post_init__
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
        own = {"norm_first": False, "hidden_act": "relu", "initializer_range": self.initializer_range}
        super().__post_init__(**self.make_parts(kwargs, encoder=own, decoder={"final_norm": True, **own}))

    hidden_size = part_property(
        "hidden_size", "decoder", "encoder", doc="Width of the decoder, which is that of what the heads read."
    )
    num_hidden_layers = part_property("num_hidden_layers", "decoder", doc="Number of layers of the decoder.")
    num_queries = part_property("num_queries", "decoder", doc="Largest number of objects that can be found.")

    def validate_parts(self) -> None:
        """Check that the decoder can read the encoder's output, and that something decides the matching."""
        check_same_width(self.encoder, self.decoder)
        if not (self.class_cost or self.bbox_cost or self.giou_cost):
            raise ValueError("class_cost, bbox_cost and giou_cost are all 0, which matches anything; set one of them")
