"""Dual encoders: CLIP, a text and an image in one space."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from .axes import ActivationName, PoolingName
from .configuration_base import QkvConfig, at_least, checked
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import part


@checked
class QkvTextEncoderConfig(QkvEncoderConfig):
    """The text half of a dual encoder: an encoder whose tokens see only what stands before them.

    So its end-of-text token, which `pooling` reads, has seen all of the text, and padding behind it is seen by nobody.
    """

    model_type = "qkv_text_encoder"
    causal: ClassVar[bool] = True
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_dual_encoder.QkvTextEncoderConfig",
        "AutoModel": "modeling_dual_encoder.QkvTextEncoderModel",
    }

    vocab_size: int = at_least(1, 49408)
    max_position_embeddings: int = at_least(1, 77)
    pooling: PoolingName = "end"
    hidden_act: ActivationName = "quick_gelu"
    bos_token_id: int | None = 49406
    eos_token_id: int | list[int] | None = 49407

    @property
    def tie_last_hidden_states(self) -> bool:
        """The last recorded hidden state is that of the last layer, before the norm, as in CLIP."""
        return False

    def validate_frontend(self) -> None:
        """It reads text."""
        if self.frontend != "tokens":
            raise ValueError(f"frontend={self.frontend!r} is not for {type(self).__name__}, which reads tokens")


if TYPE_CHECKING:
    TextPart = Any
    VisionPart = Any
else:
    # What may be given; what is read afterwards is always a config.
    TextPart = QkvTextEncoderConfig | dict | None
    VisionPart = QkvEncoderConfig | dict | None


@checked
class QkvDualEncoderConfig(QkvConfig):
    """Two encoders and the space they share: fields given flat are those of both, `text_config=` and `vision_config=`
    hold what differs, and saved they are full configs.

    Both are projected to `projection_dim`. Cosines are multiplied by exp of a learned number that starts as
    `logit_scale_init_value`. `embedding_chunk_size` is how many rows are encoded at a time where the loss is trained:
    memory is that of a chunk, each is computed twice, and the loss is still that of the whole batch, which accumulated
    micro-batches cannot give.
    """

    model_type = "qkv_dual_encoder"
    sub_configs_defaults: ClassVar[dict[str, Any]] = {
        "text_config": QkvTextEncoderConfig,
        "vision_config": QkvEncoderConfig,
    }
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_dual_encoder.QkvDualEncoderConfig",
        "AutoModelForZeroShotImageClassification": "modeling_dual_encoder.QkvDualEncoderModel",
        "AutoModel": "modeling_dual_encoder.QkvDualEncoderModel",
    }

    text_config: TextPart = None
    vision_config: VisionPart = None
    projection_dim: int = at_least(1, 512)
    logit_scale_init_value: float | int = 2.6592
    embedding_chunk_size: int | None = at_least(1)

    def __post_init__(self, **kwargs: Any) -> None:
        self.text_config = part(QkvTextEncoderConfig, self.text_config, kwargs)
        self.vision_config = part(QkvEncoderConfig, self.vision_config, {"frontend": "patches", **kwargs})
        shared = self.known_fields() - {field.name for field in fields(self)}
        super().__post_init__(**{name: value for name, value in kwargs.items() if name not in shared})

    @property
    def base_model_tp_plan(self) -> dict[str, str]:  # type: ignore[override]
        """The plans of both halves."""
        halves = (("text_model", self.text_config), ("vision_model", self.vision_config))
        return {f"{half}.{name}": how for half, config in halves for name, how in config.base_model_tp_plan.items()}

    @classmethod
    def known_fields(cls) -> set[str]:
        """Every name this config or its parts declare."""
        return super().known_fields() | QkvEncoderConfig.known_fields()

    @property
    def vocab_size(self) -> int:
        """That of the texts."""
        return self.text_config.vocab_size

    def validate_parts(self) -> None:
        """Texts are compared with images."""
        if self.vision_config.frontend != "patches":
            raise ValueError(
                f"vision_config of frontend={self.vision_config.frontend!r} reads no images; set frontend='patches'"
            )
