"""What is peculiar to the tables of encoders over images."""

import pytest
import torch
import transformers

import qkv
import tiny
from families import variant
from qkv.modeling.conversion.image_encoder import inner_width, ratio_of


@pytest.mark.parametrize("with_pooler", [True, False])
def test_a_base_model_keeps_its_pooler_or_goes_without(with_pooler: bool) -> None:
    official = transformers.ViTModel(variant("vit", "Model", "").config(), add_pooling_layer=with_pooler)
    ours = qkv.from_transformers(official)
    assert ours.config.pooling == ("dense" if with_pooler else "first")
    assert (qkv.to_transformers(ours).pooler is None) != with_pooler


def test_images_and_patches_may_have_two_sides() -> None:
    ours = qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 4]).build())
    assert ours.config.image_shape == (12, 20) and ours.config.patch_size == 4
    with pytest.raises(ValueError, match="patch_size"):
        qkv.from_transformers(variant("vit", "Model", "", image_size=[12, 20], patch_size=[4, 5]).build())


@pytest.mark.parametrize("pooling", ["first", "distilled"])
def test_a_distillation_token_makes_deit(pooling: str) -> None:
    config = tiny.image_encoder("deit", image_size=12, pooling=pooling)
    stock = qkv.to_transformers(qkv.QkvImageEncoderForImageClassification(config))
    assert type(stock).__name__ == "DeiTForImageClassification" + {"first": "", "distilled": "WithTeacher"}[pooling]


def test_masked_images_are_painted_in_patches() -> None:
    stock = qkv.to_transformers(qkv.QkvImageEncoderForMaskedImageModeling(tiny.image_encoder(drop_path_rate=0.0)))
    assert stock.config.encoder_stride == stock.config.patch_size == 4


@pytest.mark.parametrize("architecture", ["vit", "deit", "dinov2"])
def test_without_biases_of_queries_keys_and_values_the_output_keeps_its_own(architecture: str) -> None:
    ours = qkv.from_transformers(variant(architecture, "Model", "", qkv_bias=False).build())
    attention = ours.layers[0].self_attn
    assert attention.q_proj.bias is attention.v_proj.bias is None and attention.o_proj.bias is not None
    assert qkv.to_transformers(ours).config.qkv_bias is False
    ours = qkv.QkvImageEncoderModel(tiny.image_encoder(drop_path_rate=0.0, attention_bias=False))
    with pytest.raises(ValueError, match="attention_bias=False would become \['o_proj'\]"):
        qkv.to_transformers(ours)


def test_the_activation_of_a_pooler_is_a_choice() -> None:
    assert qkv.from_transformers(variant("vit", "Model", "").build()).config.head_act is None
    ours = qkv.from_transformers(variant("vit", "Model", "", pooler_act="relu").build())
    assert ours.config.head_act == "relu" and qkv.to_transformers(ours).config.pooler_act == "relu"


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


def test_an_inner_width_without_a_ratio_is_refused() -> None:
    fields = {"layer_scale": 0.1, "interpolate_positions": True, "drop_path_rate": 0.0, "mask_token": True}
    ours = qkv.QkvImageEncoderModel(tiny.image_encoder(**fields, image_size=12, intermediate_size=33))
    with pytest.raises(ValueError, match="in its nearest, Dinov2Model, intermediate_size=33 would become"):
        qkv.to_transformers(ours)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_of_other_sizes_are_resampled_in_single_precision(dtype: torch.dtype) -> None:
    official = variant("dinov2", "Model", "").build().to(dtype)
    table = qkv.from_transformers(official).position.resample((3, 5))
    hidden = torch.zeros(1, 1 + 15, 32, dtype=dtype)
    assert torch.equal(table, official.embeddings.interpolate_pos_encoding(hidden, 12, 20)[0])
