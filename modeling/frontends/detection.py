"""Frontends of the two halves of a detector: a feature map or patches of an image, and object queries.

Shapes: B batch, T tokens, D hidden_size, C channels.
"""

from collections.abc import Callable
from types import SimpleNamespace

from torch import Tensor, nn
from transformers.models.detr.modeling_detr import DetrConvEncoder, DetrFrozenBatchNorm2d

from ...configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from ..position.hooks import Embedded
from .patches import PaddedPatchFrontend, flat_map


class FeatureMapFrontend(nn.Module):
    """Encode an image by a backbone of transformers, and map each place of its last feature map linearly.

    Its batch norms are frozen, for a batch of a few large images has no statistics to learn from; all else is trained.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: pixel_values (B, C, height, width), pixel_mask (B, height, width) or None -> hidden (B, rows * columns, D),
        a mask (B, rows * columns) or None, and the grid
    """

    no_split_modules = ("DetrConvEncoder",)  # stays on one device

    def __init__(self, config: QkvDetectionEncoderConfig) -> None:
        super().__init__()
        self.backbone = DetrConvEncoder(SimpleNamespace(backbone_config=config.backbone)).requires_grad_()
        self.projection = nn.Conv2d(self.backbone.intermediate_channel_sizes[-1], config.hidden_size, kernel_size=1)
        model = self.backbone.model
        if not any("Attention" in type(module).__name__ for module in model.modules()):
            # It runs with any attention implementation, for it has no attention.
            model._supports_sdpa = model._supports_flex_attn = model._supports_flash_attn = True

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Embedded:
        real = pixel_values.new_ones(pixel_values[:, 0].shape) if pixel_mask is None else pixel_mask
        features, mask = self.backbone(pixel_values.to(self.projection.weight.dtype), real)[-1]
        return flat_map(self.projection(features), None if pixel_mask is None else mask)

    def frozen_norms(self) -> list[DetrFrozenBatchNorm2d]:
        """Return the norms of the backbone that nothing trains."""
        return [module for module in self.backbone.modules() if isinstance(module, DetrFrozenBatchNorm2d)]


class QueryFrontend(nn.Module):
    """Start the object queries of a detector as zeros; their position encoding tells them apart.

    Source: Carion et al. 2020, DETR, §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872
    Shapes: memory (B, S, D) -> (B, T, D)
    """

    def __init__(self, config: QkvDetectionDecoderConfig) -> None:
        super().__init__()
        self.num_queries = config.num_queries

    def forward(self, memory: Tensor) -> Embedded:
        return Embedded(memory.new_zeros(memory.shape[0], self.num_queries, memory.shape[2]))


DETECTION_FRONTENDS: dict[str, Callable[..., nn.Module]] = {
    "feature_map": FeatureMapFrontend,
    "patches": PaddedPatchFrontend,
    "object_queries": QueryFrontend,
}
