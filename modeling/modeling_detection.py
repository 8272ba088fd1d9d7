"""Detectors: pixel_values -> feature map -> encoder -> memory; queries, memory -> decoder -> a class and a box each.

Shapes: B batch, C channels, S places of the feature map, Q object queries, D hidden_size, V labels and one for none.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.detr.modeling_detr import DetrDecoderOutput, DetrModelOutput, DetrObjectDetectionOutput
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs, maybe_install_capturing_hooks

from ..configuration.configuration_detection import (
    QkvDetectionConfig,
    QkvDetectionDecoderConfig,
    QkvDetectionEncoderConfig,
)
from .attention import Attention
from .base import QkvPreTrainedModel, can_return_tuple
from .checks.images import check_pixels
from .frontends.detection import DETECTION_FRONTENDS
from .heads.loss import Count
from .heads.matching import Objects, set_loss
from .layer import Layer
from .stack import Stack


@dataclass
class ImageEncoderOutput(BaseModelOutput):
    """Output of the image encoder: `last_hidden_state` (B, S, D), and of each place whether it is real and where.

    Shapes: padding_mask (B, S) or None where all places are real; position_embeddings (B, S, D) or None
    """

    padding_mask: Tensor | None = None
    position_embeddings: Tensor | None = None


class Detector(QkvPreTrainedModel):
    """The base of all models that read images of any size: names, and the start of norms that nothing trains."""

    main_input_name = "pixel_values"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # A feature map's backbone has them, patches have not.
        for norm in getattr(module, "frozen_norms", list)():
            for ones, zeros in ((norm.weight, norm.bias), (norm.running_var, norm.running_mean)):
                init.ones_(ones)
                init.zeros_(zeros)


class QkvDetectionEncoderModel(Detector, Stack):
    """Bidirectional stack over the places of an image: `pixel_values -> feature map -> Stack -> memory (B, S, D)`."""

    config: QkvDetectionEncoderConfig
    frontends = DETECTION_FRONTENDS

    def __init__(self, config: QkvDetectionEncoderConfig) -> None:
        super().__init__(config)
        frontend = self.embed_tokens
        if config.backbone is not None:
            # It gets the hooks that record its outputs when it is made, and transformers would add them once more
            # with the hooks of this model.
            self.embed_tokens = None
            maybe_install_capturing_hooks(self)
            self.embed_tokens = frontend
        self._no_split_modules = [*self._no_split_modules, *getattr(frontend, "no_split_modules", ())]
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self, pixel_values: Tensor | None = None, pixel_mask: Tensor | None = None, **kwargs: Any
    ) -> ImageEncoderOutput:
        """Encode images (B, C, height, width); `pixel_mask` (B, height, width) marks real pixels."""
        check_pixels(pixel_values, pixel_mask, self.config.num_channels)
        embedded = self.embed_tokens(pixel_values, pixel_mask)
        hidden = self.run(embedded, **kwargs)
        return ImageEncoderOutput(hidden, None, None, embedded.padding_mask, self.position.query_key(embedded))


class QkvDetectionDecoderModel(Stack):
    """Decoder of object queries: `memory (B, S, D) -> queries -> Stack -> last_hidden_state (B, Q, D)`."""

    config: QkvDetectionDecoderConfig
    frontends = DETECTION_FRONTENDS
    main_input_name = "encoder_hidden_states"
    _can_record_outputs = {
        **Stack._can_record_outputs,
        "cross_attentions": OutputRecorder(Attention, index=1, layer_name="cross_attn"),
        "intermediate_hidden_states": OutputRecorder(Layer),
    }

    def __init__(self, config: QkvDetectionDecoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self, encoder_hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> DetrDecoderOutput:
        """Read memory (B, S, D), its mask (B, S) and positions (B, S, D); `attention_mask` (B, Q) is of the queries."""
        embedded = self.embed_tokens(encoder_hidden_states)._replace(padding_mask=attention_mask)
        return DetrDecoderOutput(self.run(embedded, encoder_hidden_states=encoder_hidden_states, **kwargs))


class QkvDetectionModel(Detector):
    """Two stacks joined by cross-attention, with positions in every layer: DETR by configuration.

    `pixel_values -> encoder -> memory (B, S, D); decoder(memory) -> last_hidden_state (B, Q, D)`
    """

    config: QkvDetectionConfig

    def __init__(self, config: QkvDetectionConfig) -> None:
        super().__init__(config)
        self.encoder = QkvDetectionEncoderModel(config.encoder)
        self.decoder = QkvDetectionDecoderModel(config.decoder)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        **kwargs: object,
    ) -> DetrModelOutput:
        """Decode object queries; `pixel_mask` (B, height, width) is 0 at padding at the right and below.

        `decoder_attention_mask` (B, Q) is 0 at queries that no other reads.
        """
        kwargs = {**self.recorded(), **kwargs}
        encoded = self.encoder(pixel_values, pixel_mask, **kwargs)
        outputs = self.decoder(
            encoded.last_hidden_state,
            decoder_attention_mask,
            encoder_attention_mask=encoded.padding_mask,
            encoder_position_embeddings=encoded.position_embeddings,
            output_intermediate_hidden_states=self.config.auxiliary_loss,
            **kwargs,
        )
        return self.joined_output(encoded, outputs)

    def joined_output(self, encoded: ImageEncoderOutput, outputs: DetrDecoderOutput) -> DetrModelOutput:
        """Join the outputs of the two stacks; states of earlier layers are read through the last norm."""
        between = outputs.intermediate_hidden_states
        return DetrModelOutput(
            outputs.last_hidden_state,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
            intermediate_hidden_states=None if between is None else torch.stack([*map(self.decoder.norm, between)]),
        )


class BoxHead(nn.Module):
    """Predict the box of each object query: center and size as parts of the image, by three linear maps.

    Source: Carion et al. 2020, DETR, §3.2, prediction feed-forward networks, https://arxiv.org/abs/2005.12872
    Shapes: (..., D) -> (..., 4) between 0 and 1
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden_size, width) for width in (hidden_size, hidden_size, 4))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        return self.layers[-1](hidden).sigmoid()


class QkvDetectionForObjectDetection(Detector):
    """Find objects: `pixel_values -> QkvDetectionModel -> classifier, box_head -> logits (B, Q, V), pred_boxes`."""

    config: QkvDetectionConfig

    def __init__(self, config: QkvDetectionConfig) -> None:
        super().__init__(config)
        self.model = QkvDetectionModel(config)
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 0) + 1)
        self.box_head = BoxHead(config.hidden_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        labels: Objects | None = None,
        num_items_in_batch: Count = None,
        **kwargs: object,
    ) -> DetrObjectDetectionOutput:
        """Detect objects.

        `labels` hold of each image `class_labels` (N,) and `boxes` (N, 4), center and size as parts of the image;
        `num_items_in_batch` are the objects and the images of a whole step that is taken in parts, as a tensor (2,).
        """
        outputs = dict(self.model(pixel_values, pixel_mask, **kwargs))
        between = outputs.pop("intermediate_hidden_states", None)
        logits, boxes = self.predict(outputs["last_hidden_state"])
        scored: dict[str, Any] = {}
        if labels is not None:
            earlier = [] if between is None else [self.predict(state) for state in between[:-1]]
            loss, parts = set_loss([*earlier, (logits, boxes)], labels, self.config, num_items_in_batch)
            others = [{"logits": scores, "pred_boxes": places} for scores, places in earlier]
            scored = {"loss": loss, "loss_dict": parts, "auxiliary_outputs": others or None}
        return DetrObjectDetectionOutput(logits=logits, pred_boxes=boxes, **scored, **outputs)

    def predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Predict class and box of each object query: (B, Q, D) -> (B, Q, V), (B, Q, 4)."""
        return self.classifier(hidden), self.box_head(hidden)
