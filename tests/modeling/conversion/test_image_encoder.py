"""What is peculiar to the tables of encoders over images."""

import pytest
import torch

import qkv
from families import variant
from qkv.modeling.conversion.image_encoder import inner_width, ratio_of


def test_images_and_patches_may_have_two_sides() -> None:
    ours = qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 4]).build())
    assert ours.config.image_shape == (12, 20) and ours.config.patch_size == 4
    with pytest.raises(ValueError, match="patch_size"):
        qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 5]).build())


@pytest.mark.parametrize(
    ("gated", "ratio", "inner"), [(False, 2, 64), (False, 3, 96), (True, 2, 48), (True, 3, 64), (True, 4, 88)]
)
def test_dinov2s_inner_width_follows_from_a_ratio(gated: bool, ratio: int, inner: int) -> None:
    official = variant("dinov2", "Model", "", use_swiglu_ffn=gated, mlp_ratio=ratio).build()
    ours = qkv.from_transformers(official)
    assert (ours.config.intermediate_size, ours.config.feed_forward) == (inner, "glu" if gated else "mlp")
    assert ours.config.hidden_act == ("silu" if gated else "gelu")
    back = qkv.to_transformers(ours).config
    assert (back.mlp_ratio, back.use_swiglu_ffn, back.hidden_act) == (ratio, gated, "gelu")


def test_dinov2_giant_is_as_wide_as_published() -> None:
    assert inner_width(1536, 4, gated=True) == 4096
    assert ratio_of(4096, {"hidden_size": 1536, "feed_forward": "glu"}) == 4


@pytest.mark.parametrize("masked", [True, False])
def test_dinov2_has_a_mask_token_or_none(masked: bool) -> None:
    official = variant("dinov2", "ForImageClassification", "", use_mask_token=masked).build()
    ours = qkv.from_transformers(official)
    assert (ours.model.embed_tokens.mask_token is not None) == ours.config.mask_token == masked
    assert qkv.to_transformers(ours).config.use_mask_token == masked


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_of_other_sizes_are_resampled_in_single_precision(dtype: torch.dtype) -> None:
    official = variant("dinov2", "Model", "").build().to(dtype)
    table = qkv.from_transformers(official).position.resample((3, 5), torch.device("cpu"))
    hidden = torch.zeros(1, 1 + 15, 32, dtype=dtype)
    assert torch.equal(table, official.embeddings.interpolate_pos_encoding(hidden, 12, 20)[0])
