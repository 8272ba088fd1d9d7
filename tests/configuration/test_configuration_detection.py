"""What a detector's config derives."""

from typing import Any

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


def test_without_a_backbone_patches_are_read() -> None:
    assert detector().encoder.frontend == "feature_map"
    config = detector(backbone_config=None)
    assert config.encoder.frontend == "patches"
    assert QkvDetectionConfig.from_dict(config.to_dict()).encoder.backbone_config is None
