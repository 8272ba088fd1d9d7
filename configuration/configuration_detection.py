"""Detectors: DETR, an encoder over a feature map and a decoder that finds a set of objects in it."""

from copy import deepcopy
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from transformers import CONFIG_MAPPING, PreTrainedConfig

from .axes import ImageFrontendName, ImagePositionName, SlotPositionName
from .configuration_base import HUGGING_FACE_EXTRAS, QkvConfig, at_least, bounded, checked, positive
from .configuration_encoder_decoder import part, refuse_other_width
from .configuration_stack import StackConfig

# What a config says of a file or a run rather than of a backbone.
BESIDE = frozenset(
    "_name_or_path transformers_version architectures dtype id2label label2id problem_type output_hidden_states "
    "output_attentions return_dict chunk_size_feed_forward is_encoder_decoder".split()
)


def weight(default: float) -> Any:
    """How much one part of a loss or of a cost counts beside the others; 0 leaves it out."""
    return bounded(default, lambda value: 0 <= value < float("inf"), "be finite and not negative")


@checked
class QkvImageEncoderConfig(StackConfig):
    """The half of a detector that reads an image of any size, as places in a grid of rows and columns.

    `frontend="feature_map"` reads what the backbone of `backbone_config` makes of it, a model of transformers such as
    `{"model_type": "resnet"}`, of which the last of `out_features` counts; `"patches"` maps squares of `patch_size`
    pixels linearly. `position="sinusoidal_2d"` adds waves over rows and columns to queries and keys of every layer;
    `"sinusoidal_2d_and_input"` adds them to what enters the first layer too, so that values say where they are from.
    """

    model_type = "qkv_image_encoder"
    has_padding_inside: ClassVar[bool] = True
    class_token: ClassVar[bool] = False
    distillation_token: ClassVar[bool] = False
    mask_token: ClassVar[bool] = False
    patch_bias: ClassVar[bool] = True

    frontend: ImageFrontendName = "feature_map"
    backbone_config: dict[str, Any] | None = None
    patch_size: int = at_least(1, 16)
    num_channels: int = at_least(1, 3)
    position: ImagePositionName = "sinusoidal_2d"  # type: ignore[assignment]  # other words than other stacks have

    def __post_init__(self, **kwargs: Any) -> None:
        if self.frontend == "feature_map" and isinstance(self.backbone_config, dict | None):
            self.backbone_config = whole_backbone(self.backbone_config or {"model_type": "resnet"}, self.num_channels)
        super().__post_init__(**kwargs)

    @property
    def backbone(self) -> PreTrainedConfig:
        """The config of the backbone, for transformers."""
        values = dict(self.backbone_config or {})
        return CONFIG_MAPPING[values.pop("model_type")](**values)

    def validate_grid(self) -> None:
        """Rows and columns have as many components each, in pairs of a sine and a cosine."""
        if self.position != "none" and self.hidden_size % 4:
            raise ValueError(
                f"position={self.position!r} gives rows and columns pairs of waves, so hidden_size={self.hidden_size} "
                "must be a multiple of 4"
            )

    def validate_backbone(self) -> None:
        """Only a feature map has a backbone, and both read as many colours."""
        if self.frontend != "feature_map" and self.backbone_config is not None:
            raise ValueError("backbone_config is for frontend='feature_map'; leave it out for 'patches'")


def whole_backbone(given: dict[str, Any], num_channels: int) -> dict[str, Any]:
    """Every field of a backbone's config, so that no later default changes a saved one."""
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
class QkvSlotDecoderConfig(StackConfig):
    """The half of a detector that looks for objects: as many slots as it can find at most, that see each other and
    the image. A slot starts as nothing, and knows itself by a vector that is added in every layer.
    """

    model_type = "qkv_slot_decoder"
    frontend: ClassVar[str] = "slots"
    cross_attention: ClassVar[bool] = True

    num_queries: int = at_least(1, 100)
    position: SlotPositionName = "slots"  # type: ignore[assignment]  # a word of its own

    def __post_init__(self, **kwargs: Any) -> None:
        self.max_position_embeddings = self.num_queries
        super().__post_init__(**kwargs)


if TYPE_CHECKING:
    ImageEncoderPart = Any
    SlotDecoderPart = Any
else:
    # What may be given; what is read afterwards is always a config.
    ImageEncoderPart = QkvImageEncoderConfig | dict | None
    SlotDecoderPart = QkvSlotDecoderConfig | dict | None


@checked
class QkvDetectionConfig(QkvConfig):
    """An image encoder and a decoder of slots: fields given flat are those of both, `encoder=` and `decoder=` hold what
    differs, and saved they are full configs.

    Objects and slots are matched so that the sum of `class_cost`, `bbox_cost` (L1) and `giou_cost` is least. The loss
    weighs boxes by `bbox_loss_coefficient` (L1) and `giou_loss_coefficient`, and the class of slots without an object
    by `eos_coefficient`. `auxiliary_loss` adds the loss of what each layer but the last would answer.
    """

    model_type = "qkv_detection"
    sub_configs_defaults: ClassVar[dict[str, Any]] = {"encoder": QkvImageEncoderConfig, "decoder": QkvSlotDecoderConfig}
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_detection.QkvDetectionConfig",
        "AutoModel": "modeling_detection.QkvDetectionModel",
        "AutoModelForObjectDetection": "modeling_detection.QkvDetectionForObjectDetection",
    }

    encoder: ImageEncoderPart = None
    decoder: SlotDecoderPart = None
    class_cost: float | int = weight(1)
    bbox_cost: float | int = weight(5)
    giou_cost: float | int = weight(2)
    bbox_loss_coefficient: float | int = weight(5)
    giou_loss_coefficient: float | int = weight(2)
    eos_coefficient: float | int = positive(0.1)
    auxiliary_loss: bool = False
    initializer_range: float | int = positive(0.02)
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        shared = {"norm_first": False, "hidden_act": "relu", "initializer_range": self.initializer_range, **kwargs}
        self.encoder = part(QkvImageEncoderConfig, self.encoder, shared)
        self.decoder = part(QkvSlotDecoderConfig, self.decoder, {"final_norm": True, **shared})
        for name in kwargs.keys() - self.known_fields() - HUGGING_FACE_EXTRAS:
            QkvSlotDecoderConfig.refuse_fixed(name, kwargs[name])
        given = self.known_fields() - {field.name for field in fields(self)}
        super().__post_init__(**{name: value for name, value in kwargs.items() if name not in given})

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """The plans of both halves."""
        halves = {"encoder": self.encoder, "decoder": self.decoder}
        return {f"{half}.{name}": how for half, own in halves.items() for name, how in own.base_model_tp_plan.items()}

    @classmethod
    def known_fields(cls) -> set[str]:
        """Every name this config or one of its parts declares."""
        return super().known_fields() | QkvImageEncoderConfig.known_fields() | QkvSlotDecoderConfig.known_fields()

    @property
    def frontend(self) -> str:
        """The encoder's: what the model reads."""
        return str(self.encoder.frontend)

    @property
    def hidden_size(self) -> int:
        """The decoder's width, which is the width of what the heads read."""
        return int(self.decoder.hidden_size)

    @property
    def num_hidden_layers(self) -> int:
        """The decoder's depth."""
        return int(self.decoder.num_hidden_layers)

    @property
    def num_queries(self) -> int:
        """How many objects can be found at most."""
        return int(self.decoder.num_queries)

    def validate_parts(self) -> None:
        """Memory has the width the decoder reads, and something decides which slot takes which object."""
        refuse_other_width(self.encoder, self.decoder)
        if not (self.class_cost or self.bbox_cost or self.giou_cost):
            raise ValueError("class_cost, bbox_cost and giou_cost are all 0, which matches anything; set one of them")
