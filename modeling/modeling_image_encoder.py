"""Image encoders and their heads: pixel_values -> patches -> Stack -> head -> logits or pixels.

Shapes: B batch, T tokens, D hidden_size, V labels, C channels, N patches.
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput, MaskedImageModelingOutput
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ..configuration.configuration_image_encoder import QkvImageEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple, exactly_one
from .checks.inputs import check_input_kind
from .frontends.patches import special_token
from .heads.head import POOLINGS, PixelHead
from .heads.loss import check_unsmoothed, masked_image_loss
from .modeling_encoder import PooledClassifier
from .position.hooks import Embedded
from .stack import Stack


class QkvImageEncoderModel(Stack):
    """Bidirectional stack over the patches of an image: ViT, DeiT, DINOv2 by configuration.

    `pixel_values -> patches -> Stack -> last_hidden_state (B, T, D), pooler_output`
    """

    config: QkvImageEncoderConfig
    main_input_name = "pixel_values"

    def __init__(self, config: QkvImageEncoderConfig, *, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.pooler = POOLINGS[config.pooling](config) if add_pooling_layer else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        pixel_values: Tensor | None = None,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode images; `bool_masked_pos` (B, N) marks masked patches, `interpolate_pos_encoding` admits any size."""
        check_input_kind(self, kwargs)
        exactly_one(pixel_values=pixel_values, inputs_embeds=inputs_embeds)
        options = {"bool_masked_pos": bool_masked_pos, "interpolate_pos_encoding": interpolate_pos_encoding}
        if inputs_embeds is not None:
            embedded = Embedded(inputs_embeds, attention_mask)
        else:
            embedded = self.embed_tokens(pixel_values, attention_mask, **options)
        hidden = self.run(embedded, **kwargs)
        return BaseModelOutputWithPooling(hidden, None if self.pooler is None else self.pooler(hidden))


class QkvImageEncoderForImageClassification(PooledClassifier):
    """Classify an image: `pixel_values (B, C, height, width) -> QkvImageEncoderModel -> pooling -> logits (B, V)`."""

    config: QkvImageEncoderConfig
    main_input_name = "pixel_values"
    model_class = QkvImageEncoderModel

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ImageClassifierOutput:
        """Score images; `labels` (B,), `interpolate_pos_encoding` admits other sizes than the config's."""
        outputs = self.read(pixel_values=pixel_values, interpolate_pos_encoding=interpolate_pos_encoding, **kwargs)
        loss, logits = self.classify(outputs, labels, num_items_in_batch)
        return ImageClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class QkvImageEncoderForMaskedImageModeling(QkvPreTrainedModel):
    """Paint masked patches: `pixel_values, bool_masked_pos -> QkvImageEncoderModel -> PixelHead -> reconstruction`."""

    config: QkvImageEncoderConfig
    main_input_name = "pixel_values"

    def __init__(self, config: QkvImageEncoderConfig) -> None:
        super().__init__(config)
        self.model = QkvImageEncoderModel(config, add_pooling_layer=False)
        if getattr(self.model.embed_tokens, "mask_token", None) is None:
            self.model.embed_tokens.mask_token = special_token(config)
        self.decoder = PixelHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> MaskedImageModelingOutput:
        """Reconstruct masked patches, which `bool_masked_pos` (B, N) marks and the loss is taken on."""
        outputs = self.model(pixel_values, bool_masked_pos, interpolate_pos_encoding, **kwargs)
        size = self.config.patch_size
        grid = (pixel_values.shape[2] // size, pixel_values.shape[3] // size)
        image = self.decoder(outputs.last_hidden_state[:, self.config.num_prefix_tokens :], grid)
        loss = None
        if bool_masked_pos is not None:
            check_unsmoothed(self.config)
            loss = masked_image_loss(pixel_values, image, bool_masked_pos.unflatten(1, grid), size, num_items_in_batch)
        return MaskedImageModelingOutput(loss, image, outputs.hidden_states, outputs.attentions)
