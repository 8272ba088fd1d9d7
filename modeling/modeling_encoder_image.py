"""Image heads on the encoder: pixel_values -> PatchFrontend -> Stack -> head -> scores or pixels.

Shapes: B batch, V labels, C channels, N patches.
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import ImageClassifierOutput, MaskedImageModelingOutput

from ..configuration.configuration_encoder import QkvEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple
from .frontend import special_token
from .head import PixelHead
from .loss import masked_pixels
from .modeling_encoder import PooledClassifier, QkvEncoderModel


class QkvEncoderForImageClassification(PooledClassifier):
    """Classify an image: `pixel_values (B, C, height, width) -> QkvEncoderModel -> pooling -> logits (B, V)`."""

    reads = "patches"

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """`labels` (B,); `interpolate_pos_encoding` admits images of another size than the config's."""
        outputs = self.model(pixel_values=pixel_values, interpolate_pos_encoding=interpolate_pos_encoding, **kwargs)
        loss, logits = self.classify(outputs, labels, num_items_in_batch)
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class QkvEncoderForMaskedImageModeling(QkvPreTrainedModel):
    """Paint masked patches: `pixel_values, bool_masked_pos -> QkvEncoderModel -> PixelHead -> reconstruction`."""

    config: QkvEncoderConfig
    reads = "patches"

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config)
        self.model = QkvEncoderModel(config, add_pooling_layer=False)
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
        **kwargs: Any,
    ) -> MaskedImageModelingOutput:
        """`bool_masked_pos` (B, N) marks hidden patches, and the loss is taken on them."""
        outputs = self.model(
            pixel_values=pixel_values,
            bool_masked_pos=bool_masked_pos,
            interpolate_pos_encoding=interpolate_pos_encoding,
            **kwargs,
        )
        size = self.config.patch_size
        grid = (pixel_values.shape[2] // size, pixel_values.shape[3] // size)
        image = self.decoder(outputs.last_hidden_state[:, self.config.num_prefix_tokens :], grid)
        loss = None
        if bool_masked_pos is not None:
            loss = masked_pixels(pixel_values, image, bool_masked_pos.unflatten(1, grid), size, num_items_in_batch)
        return MaskedImageModelingOutput(
            loss=loss, reconstruction=image, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
