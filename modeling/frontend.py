"""How does an input become a sequence of vectors?

Shapes: B batch, T tokens, D hidden_size, C channels, N patches.
"""

from typing import Any

import torch
from torch import Tensor, nn

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


def special_token(config: QkvEncoderConfig) -> nn.Parameter:
    """A learned vector that stands for no patch (1, 1, D)."""
    return nn.Parameter(torch.zeros(1, 1, config.hidden_size))


FRONTENDS: dict[str, Any] = {"tokens": TokenFrontend, "patches": PatchFrontend, "spectrogram": SpectrogramFrontend}
