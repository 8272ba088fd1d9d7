"""Images as patches, each a vector.

Shapes: B batch, T tokens, D hidden_size, C channels, N patches.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from ...configuration.configuration_attention import grid_words
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from ..checks.images import check_pixels
from ..checks.inputs import check_marks, check_shape
from ..position.hooks import Embedded


class PatchFrontend(nn.Module):
    """Cut an image into square patches, map each linearly, put class and distillation token and registers in front.

    Source: Dosovitskiy et al. 2021, §3.1, eq. 1, https://arxiv.org/abs/2010.11929; distillation token: Touvron et al.
        2021, §4, https://arxiv.org/abs/2012.12877; mask token: Xie et al. 2022, §3.2, https://arxiv.org/abs/2111.09886;
        registers: Darcet et al. 2023, §2.2, https://arxiv.org/abs/2309.16588
    Shapes: pixel_values (B, C, height, width), bool_masked_pos (B, N) or None -> hidden (B, prefix + N, D) and its grid
    """

    def __init__(self, config: QkvImageEncoderConfig) -> None:
        super().__init__()
        self.config = config
        size = config.patch_size
        shape = (config.num_channels, config.hidden_size)
        self.projection = nn.Conv2d(*shape, kernel_size=size, stride=size, bias=config.patch_bias)
        self.class_token = special_token(config) if config.class_token else None
        self.distillation_token = special_token(config) if config.distillation_token else None
        self.register_tokens = special_token(config, config.num_register_tokens) if config.num_register_tokens else None
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
            if self.mask_token is None:
                raise ValueError("bool_masked_pos needs a mask token; use QkvImageEncoderForMaskedImageModeling")
            check_shape("bool_masked_pos", bool_masked_pos, patches.shape[:2], "patches")
            check_marks("bool_masked_pos", bool_masked_pos)
            patches = torch.where(bool_masked_pos[..., None].bool(), self.mask_token, patches)
        tokens = (self.class_token, self.distillation_token, self.register_tokens)
        prefix = [each.expand(patches.shape[0], -1, -1) for each in tokens if each is not None]
        return Embedded(torch.cat([*prefix, patches], dim=1), padding_mask, grid)

    def init_parameters(self, std: float) -> None:
        """Start the tokens that stand for no patch: those in front normal, the mask token zero."""
        for token in (self.class_token, self.distillation_token, self.register_tokens):
            if token is not None:
                init.trunc_normal_(token, std=std)
        if self.mask_token is not None:
            init.zeros_(self.mask_token)

    def patches(self, pixel_values: Tensor) -> Tensor:
        """Map each patch linearly: (B, C, height, width) -> (B, D, rows, columns)."""
        return self.projection(pixel_values.to(self.projection.weight.dtype))

    def grid(self, pixel_values: Tensor, *, interpolate: bool | None = None) -> tuple[int, int]:
        """Return the rows and columns of patches; ValueError for images that the config does not describe."""
        config, size = self.config, self.config.patch_size
        check_pixels(pixel_values, None, config.num_channels)
        height, width = pixel_values.shape[2:]
        interpolate = config.interpolate_positions if interpolate is None else interpolate
        if (height, width) != config.image_shape and not interpolate:
            raise ValueError(
                f"images are {height}x{width} but image_size={config.image_size}; resize them, or pass "
                "interpolate_pos_encoding=True to resample the positions"
            )
        if height % size or width % size:
            raise ValueError(f"images of {height}x{width} are not a multiple of patch_size={size}; resize or pad them")
        if width // size != config.grid_columns and (words := grid_words(config)):
            raise ValueError(
                f"images of {height}x{width} have {width // size} columns of patches, but {words[0]} counts the "
                f"{config.grid_columns} of image_size={config.image_size}; resize them"
            )
        return height // size, width // size


class PaddedPatchFrontend(PatchFrontend):
    """Cut images of any size, padded at the right and below, into square patches and map each linearly.

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


def flat_map(features: Tensor, mask: Tensor | None) -> Embedded:
    """Lay out a feature map row by row: (B, D, rows, columns), (B, rows, columns) -> (B, T, D), (B, T), the grid."""
    hidden = features.flatten(2).transpose(1, 2).contiguous()
    return Embedded(hidden, None if mask is None else mask.flatten(1), (features.shape[2], features.shape[3]))


def special_token(config: QkvImageEncoderConfig, count: int = 1) -> nn.Parameter:
    """Make learned vectors that stand for no patch (1, count, D)."""
    return nn.Parameter(torch.zeros(1, count, config.hidden_size))
