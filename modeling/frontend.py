"""Frontends: how an input becomes a sequence of vectors.

Shapes: B batch, T tokens, D hidden_size, C channels, N patches.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.models.detr.modeling_detr import DetrConvEncoder, DetrFrozenBatchNorm2d

from ..configuration.configuration_attention import grid_words
from ..configuration.configuration_base import QkvConfig
from ..configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from ..configuration.configuration_image_encoder import QkvImageEncoderConfig
from .checks.inputs import can_read_values, check_input_ids, check_masked_patches
from .position.hooks import Embedded
from .position.token_layout import MaskSizes, lay_out
from .spectrogram import SpectrogramFrontend


class TokenFrontend(nn.Embedding):
    """Look up a vector for each token id, times sqrt(D) where the config scales embeddings.

    Padding needs no zero row: a masked token is read by nobody, so its row gets no gradient.

    Source: Vaswani et al. 2017, §3.4, https://arxiv.org/abs/1706.03762
    Shapes: input_ids (B, T) -> (B, T, D)
    """

    main_input_name = "input_ids"

    def __init__(self, config: QkvConfig) -> None:
        super().__init__(config.vocab_size, config.embedding_width)
        # By the name that serving engines look for, which put a table of their own in its place.
        self.embed_scale = config.hidden_size**0.5 if config.scale_embedding is True else 1.0

    def forward(self, input_ids: Tensor) -> Tensor:
        check_input_ids(input_ids, self.num_embeddings)
        hidden = super().forward(input_ids)
        return hidden if self.embed_scale == 1.0 else hidden * self.embed_scale


# The share of tokens that were masked in training: 80% of the 15% that were to be predicted.
TRAINED_MASKED = 0.15 * 0.8


def drop_masked_tokens(
    config: Any, embedded: Embedded, input_ids: Tensor, position_ids: Tensor | None = None, **kwargs: Any
) -> Tensor:
    """Take masked tokens for tokens dropped out: zero, with all others scaled as by dropout in training.

    A text with as many masks as in training is scaled by 1, one without any by 0.88, each document of a row by its own.

    Source: Rives et al. 2021, ESM-1b, supplement, https://doi.org/10.1073/pnas.2016239118, and its code
        (`token_dropout`), https://github.com/facebookresearch/esm
    Shapes: hidden (B, T, D), input_ids (B, T) -> (B, T, D)
    """
    hidden, mask = embedded.hidden, embedded.padding_mask
    real = mask[:, -hidden.shape[1] :] if isinstance(mask, Tensor) and mask.ndim == 2 else None
    layout = lay_out(hidden, MaskSizes.of(config, hidden.shape[1], None), real, position_ids, **kwargs)
    masked = input_ids == config.mask_token_id
    real = torch.ones_like(masked) if layout.padding is None else layout.padding
    documents = layout.documents
    kept, all_tokens = (count_by_document(flags, documents) for flags in (real & ~masked, real))
    scaled = hidden.masked_fill(masked[..., None], 0.0) * (1 - TRAINED_MASKED)
    # In a text of masks alone there is nothing to scale.
    return (scaled * (all_tokens / kept.clamp(min=1))[..., None]).to(hidden.dtype)


def count_by_document(flags: Tensor, documents: Tensor | None) -> Tensor:
    """Count the flags (B, T) in the document of each token, or in each row: (B, T) or (B, 1), in single precision."""
    counted = flags.to(torch.float32)
    if documents is None:
        return counted.sum(-1, keepdim=True)
    documents = documents.expand_as(flags)
    return torch.zeros_like(counted).scatter_add(1, documents, counted).gather(1, documents)


class PatchFrontend(nn.Module):
    """Cut an image into square patches, map each linearly, put class and distillation token in front.

    Source: Dosovitskiy et al. 2021, §3.1, eq. 1, https://arxiv.org/abs/2010.11929; distillation token: Touvron et al.
        2021, §4, https://arxiv.org/abs/2012.12877; mask token: Xie et al. 2022, §3.2, https://arxiv.org/abs/2111.09886
    Shapes: pixel_values (B, C, height, width), bool_masked_pos (B, N) or None -> hidden (B, prefix + N, D) and its grid
    """

    main_input_name = "pixel_values"

    def __init__(self, config: QkvImageEncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.patch_size
        shape = (config.num_channels, config.hidden_size)
        self.projection = nn.Conv2d(*shape, kernel_size=size, stride=size, bias=config.patch_bias)
        self.class_token = special_token(config) if config.class_token else None
        self.distillation_token = special_token(config) if config.distillation_token else None
        self.mask_token = special_token(config) if config.mask_token else None

    def forward(
        self,
        pixel_values: Tensor,
        padding_mask: Tensor | None = None,
        *,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
    ) -> Embedded:
        grid = self.grid(pixel_values, interpolate=interpolate_pos_encoding)
        patches = self.patches(pixel_values).flatten(2).transpose(1, 2)  # (B, N, D)
        if bool_masked_pos is not None:
            token = check_masked_patches(bool_masked_pos, patches, self.mask_token)
            patches = torch.where(bool_masked_pos[..., None].bool(), token, patches)
        prefix = [token for token in (self.class_token, self.distillation_token) if token is not None]
        hidden = torch.cat([token.expand(patches.shape[0], -1, -1) for token in prefix] + [patches], dim=1)
        return Embedded(hidden, padding_mask, grid)

    def init_parameters(self, std: float) -> None:
        """Start the tokens that stand for no patch: class and distillation token normal, the mask token zero."""
        for token in (self.class_token, self.distillation_token):
            if token is not None:
                init.trunc_normal_(token, std=std)
        if self.mask_token is not None:
            init.zeros_(self.mask_token)

    def patches(self, pixel_values: Tensor) -> Tensor:
        """Map each patch linearly: (B, C, height, width) -> (B, D, rows, columns)."""
        return self.projection(pixel_values.to(self.projection.weight.dtype))

    def grid(self, pixel_values: Tensor, *, interpolate: bool | None = None) -> tuple[int, int]:
        """Return the rows and columns of patches; ValueError for images that the config does not describe."""
        config = self.config
        interpolate = config.interpolate_positions if interpolate is None else interpolate
        if pixel_values.ndim != 4 or pixel_values.shape[1] != config.num_channels:
            raise ValueError(
                f"pixel_values of shape {tuple(pixel_values.shape)} are not (batch, {config.num_channels}, height, "
                "width); check num_channels and the image processor"
            )
        height, width = pixel_values.shape[2:]
        if (height, width) != config.image_shape and not interpolate:
            raise ValueError(
                f"images are {height}x{width} but image_size={config.image_size}; resize them, or pass "
                "interpolate_pos_encoding=True to resample the positions"
            )
        size = config.patch_size
        if height % size or width % size or not height or not width:
            raise ValueError(f"images of {height}x{width} are not a multiple of patch_size={size}; resize or pad them")
        if width // size != config.grid_columns and (words := grid_words(config)):
            raise ValueError(
                f"images of {height}x{width} have {width // size} columns of patches, but {words[0]} counts the "
                f"{config.grid_columns} of image_size={config.image_size}; resize them"
            )
        if can_read_values(pixel_values) and not pixel_values.isfinite().all():
            raise ValueError("pixel_values contain NaN or infinity; check the image processor's normalisation")
        return height // size, width // size


class PaddedPatchFrontend(PatchFrontend):
    """Cut images of any size, padded at the right and below, into square patches and map each linearly.

    What the last patches lack of an image is taken for padding.

    Source: Dosovitskiy et al. 2021, §3.1, eq. 1, https://arxiv.org/abs/2010.11929; padding: Carion et al. 2020, DETR,
        https://arxiv.org/abs/2005.12872
    Shapes: pixel_values (B, C, height, width), pixel_mask (B, height, width) or None -> hidden (B, rows * columns, D),
        a mask (B, rows * columns) or None, and the grid
    """

    def forward(  # type: ignore[override]  # a detector masks no patches, and admits every size
        self, pixel_values: Tensor, pixel_mask: Tensor | None = None
    ) -> Embedded:
        rows, columns = (-size % self.config.patch_size for size in pixel_values.shape[2:])
        features = self.patches(F.pad(pixel_values, (0, columns, 0, rows)))
        if pixel_mask is None:
            return flat_map(features, None)
        padded = F.pad(pixel_mask, (0, columns, 0, rows))
        # A patch is real if its first pixel is.
        return flat_map(features, F.interpolate(padded[None].float(), size=features.shape[-2:])[0].bool())


class FeatureMapFrontend(nn.Module):
    """Encode an image by a backbone of transformers, and map each place of its last feature map linearly.

    Its batch norms are frozen, for a batch of a few large images has no statistics to learn from; all else is trained.
    Stock DETR freezes the first stage of a new ResNet as well, and forgets about it when it loads one.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: pixel_values (B, C, height, width), pixel_mask (B, height, width) or None -> hidden (B, rows * columns, D),
        a mask (B, rows * columns) or None, and the grid
    """

    main_input_name = "pixel_values"
    no_split_modules = ("DetrConvEncoder",)  # stays on one device

    def __init__(self, config: QkvDetectionEncoderConfig) -> None:
        super().__init__()
        self.backbone = DetrConvEncoder(SimpleNamespace(backbone_config=config.backbone)).requires_grad_()
        self.projection = nn.Conv2d(self.backbone.intermediate_channel_sizes[-1], config.hidden_size, kernel_size=1)
        model = self.backbone.model
        if not any("Attention" in type(module).__name__ for module in model.modules()):
            # It goes along with any implementation of what it has not.
            model._supports_sdpa = model._supports_flex_attn = model._supports_flash_attn = True

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Embedded:
        real = pixel_values.new_ones(pixel_values[:, 0].shape) if pixel_mask is None else pixel_mask
        features, mask = self.backbone(pixel_values.to(self.projection.weight.dtype), real)[-1]
        return flat_map(self.projection(features), None if pixel_mask is None else mask)

    def frozen_norms(self) -> list[DetrFrozenBatchNorm2d]:
        """Return the norms of the backbone that nothing trains."""
        return [module for module in self.backbone.modules() if isinstance(module, DetrFrozenBatchNorm2d)]


def flat_map(features: Tensor, mask: Tensor | None) -> Embedded:
    """Lay out a feature map row by row: (B, D, rows, columns), (B, rows, columns) -> (B, T, D), (B, T), the grid."""
    hidden = features.flatten(2).transpose(1, 2).contiguous()
    return Embedded(hidden, None if mask is None else mask.flatten(1), (features.shape[2], features.shape[3]))


class QueryFrontend(nn.Module):
    """Start the object queries of a detector as zeros; their position encoding tells them apart.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: memory (B, S, D) -> (B, T, D)
    """

    main_input_name = "encoder_hidden_states"

    def __init__(self, config: QkvDetectionDecoderConfig) -> None:
        super().__init__()
        self.num_queries = config.num_queries

    def forward(self, memory: Tensor) -> Embedded:
        return Embedded(memory.new_zeros(memory.shape[0], self.num_queries, memory.shape[2]))


def special_token(config: QkvImageEncoderConfig) -> nn.Parameter:
    """Make a learned vector that stands for no patch (1, 1, D)."""
    return nn.Parameter(torch.zeros(1, 1, config.hidden_size))


FRONTENDS: dict[str, Callable[..., nn.Module]] = {
    "tokens": TokenFrontend,
    "patches": PatchFrontend,
    "spectrogram": SpectrogramFrontend,
}
# Those of a detector's two halves.
DETECTION_FRONTENDS: dict[str, Callable[..., nn.Module]] = {
    "feature_map": FeatureMapFrontend,
    "patches": PaddedPatchFrontend,
    "object_queries": QueryFrontend,
}
