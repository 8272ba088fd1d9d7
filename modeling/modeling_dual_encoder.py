"""Dual encoders: input_ids -> text encoder, pixel_values -> image encoder; both -> one space -> cosines.

Shapes: B images, N texts, T tokens, C channels, D projection_dim.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.clip.modeling_clip import CLIPOutput

from ..configuration.configuration_dual_encoder import QkvDualEncoderConfig, QkvTextEncoderConfig
from .base import QkvPreTrainedModel, can_return_tuple, inputs_of
from .heads.loss import contrastive
from .modeling_encoder import TextStack
from .modeling_image_encoder import QkvImageEncoderModel
from .position.hooks import Embedded

EncodeRows = Callable[..., BaseModelOutputWithPooling]
# Cosines are multiplied by no more than 100 where a softmax is taken of them.
HIGHEST_LOGIT_SCALE = math.log(100)
# Most pairs do not belong together. Zhai et al. 2023, SigLIP, §3.2, https://arxiv.org/abs/2303.15343
FIRST_LOGIT_BIAS = -10.0


class QkvTextEncoderModel(TextStack):
    """Stack over tokens, pooled at the end of the text: `input_ids -> Stack -> pooler_output (N, D)`."""

    config: QkvTextEncoderConfig

    def run(self, embedded: Embedded, position_ids: Tensor | None = None, *cache: Any, **options: Any) -> Tensor:
        if position_ids is None and self.config.pooling == "last":  # padding is read, so it is counted
            position_ids = torch.arange(embedded.hidden.shape[1], device=embedded.hidden.device)[None]
        return super().run(embedded, position_ids, *cache, **options)


class QkvDualEncoderModel(QkvPreTrainedModel):
    """Text and image encoder with one shared space: CLIP, SigLIP by configuration.

    `input_ids -> text_model -> text_embeds (N, D), pixel_values -> vision_model -> image_embeds (B, D) -> cosines`
    """

    config: QkvDualEncoderConfig

    def __init__(self, config: QkvDualEncoderConfig) -> None:
        super().__init__(config)
        text, vision, width = config.text_config, config.vision_config, config.projection_dim
        self.text_model = QkvTextEncoderModel(text)
        self.vision_model = QkvImageEncoderModel(vision)
        self.text_projection = nn.Linear(text.hidden_size, width, bias=False) if width else nn.Identity()
        self.visual_projection = nn.Linear(vision.hidden_size, width, bias=False) if width else nn.Identity()
        self.logit_scale = nn.Parameter(torch.tensor(float(config.logit_scale_init_value)))
        self.logit_bias = nn.Parameter(torch.tensor(FIRST_LOGIT_BIAS)) if config.logit_bias else None
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Linear) and module in (self.text_projection, self.visual_projection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif module is self:
            init.constant_(self.logit_scale, self.config.logit_scale_init_value)
            if self.logit_bias is not None:
                init.constant_(self.logit_bias, FIRST_LOGIT_BIAS)

    def get_input_embeddings(self) -> nn.Module:
        return self.text_model.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.text_model.embed_tokens = value

    @inputs_of(QkvTextEncoderModel)
    @can_return_tuple
    def get_text_features(self, **inputs: object) -> BaseModelOutputWithPooling:
        """Encode texts: `pooler_output` (N, D) in the shared space, not normalized."""
        outputs = self.text_model(**inputs)
        outputs.pooler_output = self.text_projection(outputs.pooler_output)
        return outputs

    @inputs_of(QkvImageEncoderModel)
    @can_return_tuple
    def get_image_features(self, **inputs: object) -> BaseModelOutputWithPooling:
        """Encode images: `pooler_output` (B, D) in the shared space, not normalized."""
        outputs = self.vision_model(**inputs)
        outputs.pooler_output = self.visual_projection(outputs.pooler_output)
        return outputs

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        return_loss: bool | None = None,
        interpolate_pos_encoding: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> CLIPOutput:
        """Compare images with texts; `return_loss` adds the contrastive loss over all processes, text i for image i."""
        if pixel_values is None:
            raise ValueError("give pixel_values beside the text, got none; get_text_features reads texts alone")
        kwargs = {**self.recorded(), **kwargs}
        text = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        text |= {"token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        texts = self.encode(self.get_text_features, text, **kwargs)
        kwargs["interpolate_pos_encoding"] = interpolate_pos_encoding
        images = self.encode(self.get_image_features, {"pixel_values": pixel_values}, **kwargs)
        text_embeds, image_embeds = (functional.normalize(side.pooler_output, dim=-1) for side in (texts, images))
        scale, bias = self.scale(), self.logit_bias
        loss = contrastive(image_embeds, text_embeds, scale, num_items_in_batch, bias) if return_loss else None
        logits = scale.to(text_embeds.device) * text_embeds @ image_embeds.to(text_embeds.device).T
        logits = logits if bias is None else logits + bias.to(logits.device)
        return CLIPOutput(loss, logits.T, logits, text_embeds, image_embeds, texts, images)

    def encode(self, features: EncodeRows, rows: dict[str, Tensor | None], **options: Any) -> Any:
        """Run one encoder on its rows, in training in chunks of `embedding_chunk_size`, each computed twice."""
        size = self.config.embedding_chunk_size
        if size is None or not (self.training and torch.is_grad_enabled()):
            return features(**rows, **options)
        return joined(
            [checkpoint(features, **chunk, **options, use_reentrant=False) for chunk in row_chunks(rows, size)]
        )

    def scale(self) -> Tensor:
        """Return the factor on cosines, in training clipped to 100 where a softmax is taken of them.

        Source: Radford et al. 2021, CLIP, §2.5, https://arxiv.org/abs/2103.00020
        """
        if self.training and self.logit_scale.requires_grad and self.logit_bias is None:
            with torch.no_grad():
                self.logit_scale.clamp_(max=HIGHEST_LOGIT_SCALE)
        return self.logit_scale.exp()


def row_chunks(rows: dict[str, Tensor | None], size: int) -> Iterator[dict[str, Any]]:
    """Split a batch by rows; an input that is shared by all rows stays whole."""
    count = max(len(value) for value in rows.values() if value is not None)
    for start in range(0, count, size):
        yield {
            name: value[start : start + size] if value is not None and len(value) == count else value
            for name, value in rows.items()
        }


def joined(outputs: Sequence[Any]) -> Any:
    """Concatenate the outputs of the chunks of a batch by rows."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(outputs))
    if isinstance(first, tuple):
        return tuple(map(joined, zip(*outputs, strict=True)))
    return type(first)(**{name: joined([output[name] for output in outputs]) for name in first})
