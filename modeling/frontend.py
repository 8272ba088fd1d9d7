"""How does an input become a sequence of vectors?

Shapes: B batch, T tokens, D hidden_size, C channels, N patches.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.detr.modeling_detr import DetrConvEncoder, DetrFrozenBatchNorm2d

from ..configuration.configuration_encoder import QkvEncoderConfig
from .check import free_to_look, refuse_input_ids, refuse_mask_positions
from .spectrogram import SpectrogramFrontend


class TokenFrontend(nn.Embedding):
    """Look up a vector for each token id, times sqrt(D) where the config scales embeddings.

    Padding needs no zero row: a masked token is read by nobody, so its row gets no gradient.

    Source: Vaswani et al. 2017, §3.4, https://arxiv.org/abs/1706.03762
    Shapes: input_ids (B, T) -> (B, T, D)
    """

    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__(config.vocab_size, config.embedding_width)
        self.scale = config.hidden_size**0.5 if config.scale_embedding else 1.0

    def forward(self, input_ids: Tensor) -> Tensor:
        refuse_input_ids(input_ids, self.num_embeddings)
        hidden = super().forward(input_ids)
        return hidden if self.scale == 1.0 else hidden * self.scale


class PatchFrontend(nn.Module):
    """Cut an image into square patches, map each linearly, put class and distillation token in front.

    Source: Dosovitskiy et al. 2021, §3.1, eq. 1, https://arxiv.org/abs/2010.11929; distillation token: Touvron et al.
        2021, §4, https://arxiv.org/abs/2012.12877; mask token: Xie et al. 2022, §3.2, https://arxiv.org/abs/2111.09886
    Shapes: pixel_values (B, C, height, width), masked (B, N) booleans or None -> (B, prefix + N, D)
    """

    main_input_name = "pixel_values"

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.patch_size
        shape = (config.num_channels, config.hidden_size)
        self.projection = nn.Conv2d(*shape, kernel_size=size, stride=size, bias=config.patch_bias)
        self.class_token = special_token(config) if config.class_token else None
        self.distillation_token = special_token(config) if config.distillation_token else None
        self.mask_token = special_token(config) if config.mask_token else None

    def forward(self, pixel_values: Tensor, masked: Tensor | None = None) -> Tensor:
        patches = self.projection(pixel_values).flatten(2).transpose(1, 2)  # (B, N, D)
        if masked is not None:
            token: Any = self.mask_token
            refuse_mask_positions(masked, patches, token)
            patches = torch.where(masked[..., None].bool(), token, patches)
        prefix = [token for token in (self.class_token, self.distillation_token) if token is not None]
        return torch.cat([token.expand(patches.shape[0], -1, -1) for token in prefix] + [patches], dim=1)

    def map(self, pixel_values: Tensor, pixel_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Patches in their places (B, D, rows, columns) and which are real (B, rows, columns), of an image of any size.

        What the last patches lack of an image is taken for padding.
        """
        rows, columns = (-size % self.config.patch_size for size in pixel_values.shape[2:])
        features = self.projection(F.pad(pixel_values, (0, columns, 0, rows)))
        return features, real_places(F.pad(pixel_mask, (0, columns, 0, rows)), features)

    def grid(self, pixel_values: Tensor, *, resample: bool) -> tuple[int, int]:
        """(rows, columns) of patches, after refusing images the config does not describe."""
        config = self.config
        if pixel_values.ndim != 4 or pixel_values.shape[1] != config.num_channels:
            raise ValueError(
                f"pixel_values of shape {tuple(pixel_values.shape)} are not (batch, {config.num_channels}, height, "
                "width); check num_channels and the image processor"
            )
        height, width = pixel_values.shape[2:]
        if (height, width) != config.image_shape and not resample:
            raise ValueError(
                f"images are {height}x{width} but image_size={config.image_size}; resize them, or pass "
                "interpolate_pos_encoding=True to resample the positions"
            )
        size = config.patch_size
        if height % size or width % size or not height or not width:
            raise ValueError(f"images of {height}x{width} are not a multiple of patch_size={size}; resize or pad them")
        if free_to_look(pixel_values) and not pixel_values.isfinite().all():
            raise ValueError("pixel_values contain NaN or infinity; check the image processor's normalisation")
        return height // size, width // size


class FeatureMapFrontend(nn.Module):
    """See an image through a backbone of transformers, map each place of its last feature map linearly.

    Its batch norms are frozen, for a batch of a few large images has no statistics to learn from; all else is trained.
    Stock DETR freezes the first stage of a new ResNet as well, and forgets about it when it loads one.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: pixel_values (B, C, height, width), pixel_mask (B, height, width) -> (B, D, rows, columns) and a mask
    """

    main_input_name = "pixel_values"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.backbone = DetrConvEncoder(SimpleNamespace(backbone_config=config.backbone)).requires_grad_()
        self.projection = nn.Conv2d(self.backbone.intermediate_channel_sizes[-1], config.hidden_size, kernel_size=1)
        model: Any = self.backbone.model
        if not any("Attention" in type(module).__name__ for module in model.modules()):
            # It goes along with any implementation of what it has not.
            model._supports_sdpa = model._supports_flex_attn = model._supports_flash_attn = True

    def map(self, pixel_values: Tensor, pixel_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the map (B, D, rows, columns), and which are real (B, rows, columns)."""
        features, keep = self.backbone(pixel_values, pixel_mask)[-1]
        return self.projection(features), keep

    def frozen_norms(self) -> list[DetrFrozenBatchNorm2d]:
        """The norms of the backbone that nothing trains."""
        return [module for module in self.backbone.modules() if isinstance(module, DetrFrozenBatchNorm2d)]


class SlotFrontend(nn.Module):
    """Start as many slots as the decoder has, each of them as nothing; their positions tell them apart.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: memory (B, S, D) -> (B, T, D)
    """

    main_input_name = "encoder_hidden_states"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.count = config.num_queries

    def forward(self, memory: Tensor) -> Tensor:
        return memory.new_zeros(memory.shape[0], self.count, memory.shape[2])


def real_places(pixel_mask: Tensor, features: Tensor) -> Tensor:
    """Which places of a map (B, D, rows, columns) are real: those whose first pixel is, (B, rows, columns)."""
    return F.interpolate(pixel_mask[None].float(), size=features.shape[-2:])[0].bool()


def special_token(config: QkvEncoderConfig) -> nn.Parameter:
    """A learned vector that stands for no patch (1, 1, D)."""
    return nn.Parameter(torch.zeros(1, 1, config.hidden_size))


FRONTENDS: dict[str, Any] = {
    "tokens": TokenFrontend,
    "patches": PatchFrontend,
    "spectrogram": SpectrogramFrontend,
    "feature_map": FeatureMapFrontend,
    "slots": SlotFrontend,
}
