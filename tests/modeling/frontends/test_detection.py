"""A detector reads images of any size, and object queries that start as zeros."""

import torch

import reference
from comparison import assert_same, draw, jittered
from qkv.configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from qkv.modeling.frontends.detection import DETECTION_FRONTENDS


def detection_encoder(**fields):
    return QkvDetectionEncoderConfig(hidden_size=8, num_attention_heads=2, **fields)


def test_patches_of_a_detector_tile_an_image_of_any_size():
    frontend = jittered(DETECTION_FRONTENDS["patches"](detection_encoder(backbone_config=None, patch_size=4)))
    pixels, mask = draw(1, 3, 7, 9), torch.ones(1, 7, 9)
    mask[..., 8:] = 0
    embedded = frontend(pixels, mask)
    assert embedded.grid == (2, 3) and embedded.padding_mask.tolist() == [[True, True, False] * 2]
    padded = torch.nn.functional.pad(pixels, (0, 3, 0, 1))
    expected = reference.patch_embeddings(padded, frontend.projection.weight, frontend.projection.bias)
    assert_same(embedded.hidden, expected, pixels)
    assert torch.equal(frontend(pixels).hidden, embedded.hidden) and frontend(pixels).padding_mask is None


def test_a_feature_map_is_the_last_of_the_backbone_and_its_norms_stay():
    backbone = {"model_type": "resnet", "embedding_size": 6, "hidden_sizes": [6, 10], "depths": [1, 1]}
    config = detection_encoder(backbone_config={**backbone, "out_features": ["stage1", "stage2"]})
    frontend = DETECTION_FRONTENDS["feature_map"](config)
    hidden, mask, grid = frontend(torch.randn(2, 3, 33, 47), torch.ones(2, 33, 47))
    assert hidden.shape == (2, 30, 8) and grid == (5, 6) and mask.shape == (2, 30) and mask.all()
    assert len(frontend.frozen_norms()) == 8 and all(weight.requires_grad for weight in frontend.parameters())
    assert not any(list(norm.parameters()) for norm in frontend.frozen_norms())


def test_object_queries_start_as_zeros():
    frontend = DETECTION_FRONTENDS["object_queries"](
        QkvDetectionDecoderConfig(hidden_size=8, num_attention_heads=2, num_queries=5)
    )
    assert torch.equal(frontend(draw(2, 3, 8)).hidden, torch.zeros(2, 5, 8, dtype=torch.float64))
