"""Image encoders: ViT, DeiT, DINOv2 and the image half of CLIP."""

from typing import ClassVar

from .axes import FrontendName, ImagePoolingName, PatchPositionName
from .configuration_base import auto_classes_of
from .configuration_encoder import PooledStackConfig
from .configuration_stack import BranchConfig
from .fields import at_least, bounded, rate


def is_size(size: int | list[int] | tuple[int, ...]) -> bool:
    """Return whether this is one side or two, none of them empty."""
    return size >= 1 if isinstance(size, int) else len(size) == 2 and min(size) >= 1


class QkvImageEncoderConfig(BranchConfig, PooledStackConfig):
    """Configure an image encoder: patches -> bidirectional stack -> head (ViT, DeiT, DINOv2).

    Args:
        image_size: Side or (height, width) of images in pixels.
        patch_size: Side of a patch in pixels; it divides `image_size`.
        num_channels: Number of colour channels.
        patch_bias: Whether the linear map of patches has a bias (CLIP has none).
        class_token: Whether a class token stands before the patches.
        distillation_token: Whether a distillation token follows it (DeiT).
        num_register_tokens: Number of registers behind them, for which `position="learned"` has no rows (DINOv2).
        mask_token: Whether there is a token to put in place of masked patches; `…ForMaskedImageModeling` always has it.
        interpolate_positions: Whether images of any size are admitted without `interpolate_pos_encoding=True`.
        pooling: What a head reads: `first`, the first token; `dense`, that through a linear map and tanh (ViT); `mean`,
            the mean of all patches; `distilled`, class and distillation token (DeiT); `first_mean`, the class token
            beside the mean of all patches (DINOv2); `first_norm`, the class token normalized (CLIP);
            `attention`, all tokens as a learned query reads them, through a feed-forward network (SigLIP).
        head_transform: Whether a linear map, activation and norm stand before the classifier.
        max_position_embeddings: Number of patches and of tokens before them; follows from the sizes.
    """

    model_type = "qkv_image_encoder"
    frontend: ClassVar[FrontendName] = "patches"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "image_encoder", "QkvImageEncoder", "ImageClassification MaskedImageModeling"
    )
    # The last recorded hidden state is that of the last layer, before the norm, as in ViT.
    tie_last_hidden_states: ClassVar[bool] = False

    image_size: int | list[int] | tuple[int, int] = bounded(224, is_size, "be a side or (height, width) in pixels")
    patch_size: int = at_least(1, 16)
    num_channels: int = at_least(1, 3)
    patch_bias: bool = True
    class_token: bool = True
    distillation_token: bool = False
    num_register_tokens: int = at_least(0, 0)
    mask_token: bool = False
    interpolate_positions: bool = False
    position: PatchPositionName | list[PatchPositionName] = "learned"  # type: ignore[assignment]  # a word more
    pooling: ImagePoolingName = "first"
    head_transform: bool = False
    classifier_dropout: float | int = rate()
    label_smoothing: float | int = rate()

    def __post_init__(self, **kwargs: object) -> None:
        rows, columns = self.grid
        self.max_position_embeddings: int = rows * columns + self.num_prefix_tokens
        super().__post_init__(**kwargs)

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width) of images in pixels."""
        size = self.image_size
        return (size, size) if isinstance(size, int) else (size[0], size[1])

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        height, width = self.image_shape
        return height // self.patch_size, width // self.patch_size

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the first patch."""
        return int(self.class_token) + int(self.distillation_token) + self.num_register_tokens

    @property
    def text_length(self) -> int:
        """Number of tokens before the grid of `position="grid"` and of patterns, which is that of the patches."""
        return self.num_prefix_tokens

    @property
    def grid_columns(self) -> int:
        """Number of columns of that grid."""
        return self.grid[1]

    def validate_patches(self) -> None:
        """Check that patches tile the image, may be turned, and that the tokens that a head reads are there."""
        height, width = self.image_shape
        if height % self.patch_size or width % self.patch_size:
            size, patch = self.image_size, self.patch_size
            raise ValueError(f"image_size={size} is not a multiple of patch_size={patch}; resize or repatch")
        rope = self.rope_parameters or {}
        scaled = rope.get("rope_type") != "default" or not rope.keys() <= {"rope_type", "rope_theta"}
        if self.position_word == "rope_2d" and (self.head_dim % 4 or scaled):  # type: ignore[comparison-overlap]
            needed = f"a multiple of 4 for head_dim={self.head_dim} and rope_theta alone in rope_parameters={rope}"
            raise ValueError(f"position={self.position!r} needs {needed}")
        if self.pooling == "distilled" and not (self.class_token and self.distillation_token):
            raise ValueError("pooling='distilled' needs class_token=True and distillation_token=True")
        if self.pooling in ("first", "dense", "first_norm", "first_mean") and not self.class_token:
            raise ValueError(f"pooling={self.pooling!r} reads the class token: set class_token=True or pooling='mean'")
