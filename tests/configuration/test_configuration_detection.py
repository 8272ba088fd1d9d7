"""What a detector's config derives, and the sentence for each wrong field."""

from typing import Any

import pytest

from qkv.configuration import QkvDetectionConfig, presets

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}


def detector(**fields: Any) -> QkvDetectionConfig:
    return QkvDetectionConfig(**{**SMALL, **fields})


def test_flat_fields_are_shared_and_parts_differ() -> None:
    config = detector(num_queries=7, decoder={"num_hidden_layers": 3})
    assert (config.encoder.num_hidden_layers, config.num_hidden_layers, config.num_queries) == (2, 3, 7)
    assert config.decoder.max_position_embeddings == 7 and config.hidden_size == 16
    assert not config.encoder.final_norm and config.decoder.final_norm and not config.decoder.norm_first


def test_a_backbone_is_written_down_whole() -> None:
    config = detector(backbone_config={"model_type": "resnet", "depths": [1, 1, 1, 1]})
    saved = config.encoder.backbone_config
    assert saved["depths"] == [1, 1, 1, 1] and saved["out_features"] == ["stage4"] and saved["num_channels"] == 3
    assert config.encoder.backbone.depths == [1, 1, 1, 1]
    assert QkvDetectionConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_grey_images_make_a_grey_backbone() -> None:
    assert detector(num_channels=1).encoder.backbone_config["num_channels"] == 1


def test_the_preset_is_the_paper() -> None:
    config = presets.detr_r50()
    assert (config.num_queries, config.num_labels, config.auxiliary_loss) == (100, 91, True)
    assert config.encoder.backbone_config["depths"] == [3, 4, 6, 3] and config.encoder.num_hidden_layers == 6


WRONG = [
    (
        {"backbone_config": {"model_type": "resnt"}},
        "model_type='resnt' of backbone_config is none of transformers'; did",
    ),
    ({"backbone_config": {"model_type": "bert"}}, "model_type='bert' of backbone_config is no backbone; take one such"),
    ({"backbone_config": {"model_type": "timm_backbone"}}, "needs timm, which qkv does not use; take the checkpoint's"),
    ({"backbone_config": {"model_type": "resnet", "num_channels": 4}}, "backbone_config reads num_channels=4, "),
    ({"frontend": "patches", "backbone_config": {"model_type": "resnet"}}, "backbone_config is for frontend='feature"),
    ({"frontend": "patchs"}, "frontend='patchs' is not one of feature_map, patches; did you mean 'patches'?"),
    ({"num_queris": 3}, "QkvDetectionConfig has no field 'num_queris'; did you mean 'num_queries'?"),
    ({"hidden_size": 18}, "gives rows and columns pairs of waves, so hidden_size=18 must be a multiple of 4"),
    ({"class_cost": 0, "bbox_cost": 0, "giou_cost": 0}, "class_cost, bbox_cost and giou_cost are all 0, which matches"),
    ({"giou_cost": -1}, "giou_cost=-1 must be finite and not negative"),
    ({"eos_coefficient": 0}, "eos_coefficient=0 must be positive and finite"),
    (
        {"encoder": {"position": "learned"}},
        "position='learned' is not one of sinusoidal_2d, sinusoidal_2d_and_input, none",
    ),
    ({"decoder": {"hidden_size": 32}}, "encoder hidden_size=16 differs from decoder hidden_size=32"),
    ({"num_queries": 0}, "num_queries=0 must be at least 1"),
]


@pytest.mark.parametrize(("fields", "sentence"), WRONG)
def test_wrong_fields_get_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        detector(**fields)
