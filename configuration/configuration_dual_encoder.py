"""Dual encoders: CLIP and SigLIP, a text and an image in one space."""

from typing import ClassVar

from .axes import ActivationName, PairedTextPoolingName
from .configuration_base import auto_classes_of
from .configuration_composite import CompositeConfig, part_property
from .configuration_encoder import TextStackConfig
from .configuration_image_encoder import QkvImageEncoderConfig
from .fields import Part, at_least


class QkvTextEncoderConfig(TextStackConfig):
    """Configure the text half of a dual encoder: a stack over tokens, causal and read at the end of the text (CLIP).

    The end-of-text token attends to all of the text and to none of the padding after it.

    Args:
        causal: Whether tokens attend to none after them; SigLIP's attend to all.
        pooling: `first`, `dense`, `mean`, `first_norm`, `end` and `highest` as of `QkvEncoderConfig`; `last`, the last
            token, even of padding, through a linear map (SigLIP).
    """

    model_type = "qkv_text_encoder"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of("dual_encoder", "QkvTextEncoder", ForTextEncoding="Model")
    # The last recorded hidden state is that of the last layer, before the norm, as in CLIP.
    tie_last_hidden_states: ClassVar[bool] = False

    vocab_size: int = at_least(1, 49408)
    max_position_embeddings: int = at_least(1, 77)
    causal: bool = True  # type: ignore[misc]  # False of other encoders
    pooling: PairedTextPoolingName = "end"  # type: ignore[assignment]  # more words
    hidden_act: ActivationName = "quick_gelu"
    bos_token_id: int | None = 49406
    eos_token_id: int | list[int] | None = 49407


class QkvDualEncoderConfig(CompositeConfig):
    """Configure a text and an image encoder and the space they share (CLIP, SigLIP).

    Fields of `QkvTextEncoderConfig` and `QkvImageEncoderConfig` may be given flat for both.

    Args:
        text_config: Fields of the text encoder that are not those given flat, or its whole config.
        vision_config: Fields of the image encoder that are not those given flat, or its whole config.
        projection_dim: Width of the shared space. None has no projections: pooled vectors are of one width (SigLIP).
        logit_scale_init_value: Logarithm of the initial factor on cosines, which is learned.
        logit_bias: Whether scores have a learned bias, from -10 on, and the loss is that of a sigmoid of each (SigLIP).
        embedding_chunk_size: Rows encoded at a time in training, each twice, to save memory. None encodes all at once.
    """

    model_type = "qkv_dual_encoder"
    sub_configs_defaults = {"text_config": QkvTextEncoderConfig, "vision_config": QkvImageEncoderConfig}
    part_modules: ClassVar[dict[str, str]] = {"text_config": "text_model", "vision_config": "vision_model"}
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "dual_encoder", "QkvDualEncoder", ForZeroShotImageClassification="Model"
    )

    text_config: Part[QkvTextEncoderConfig] = None  # type: ignore[assignment]  # made in __post_init__
    vision_config: Part[QkvImageEncoderConfig] = None  # type: ignore[assignment]
    projection_dim: int | None = at_least(1, 512)
    logit_scale_init_value: float | int = 2.6592
    logit_bias: bool = False
    embedding_chunk_size: int | None = at_least(1)

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**self.make_parts(kwargs))

    vocab_size = part_property("vocab_size", "text_config")

    def validate_shared_space(self) -> None:
        """Check that vectors that no projection makes alike are of one width."""
        texts, images = self.text_config.hidden_size, self.vision_config.hidden_size
        if self.projection_dim is None and texts != images:
            widths = f"text_config.hidden_size={texts} and vision_config.hidden_size={images}"
            raise ValueError(f"projection_dim=None needs one width, got {widths}; make them equal or set it")
