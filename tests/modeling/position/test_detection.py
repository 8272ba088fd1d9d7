"""Encodings of detectors are DETR's, alone and in a batch."""

import pytest
import torch
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

import reference
from comparison import PLACES, assert_same, encoding, exact
from qkv.configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from qkv.modeling.position.hooks import Embedded


def image(word="sinusoidal_2d"):
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "patch_size": 4}
    return encoding(QkvDetectionEncoderConfig(**sizes, backbone_config=None, position=word))


def embedded(mask, dtype=torch.float64):
    """Nothing, at each place of an image (B, rows, columns), of which some may be padding."""
    return Embedded(torch.zeros(len(mask), mask[0].numel(), 12, dtype=dtype), mask.flatten(1), tuple(mask.shape[1:]))


@pytest.mark.parametrize("word", ["sinusoidal_2d", "sinusoidal_2d_and_input"])
def test_rows_and_columns_are_told_apart_by_sinusoids(word):
    mask = torch.ones(3, 3, 5, dtype=torch.bool)
    mask[1, 2:], mask[2, :, 3:] = False, False
    module, places = image(word), embedded(mask)
    with exact():
        actual, inputs = module.query_key(places), module.embed(places, PLACES)
    for row in range(3):
        assert_same(actual[row], reference.image_positions(mask[row], 12))
    assert torch.equal(inputs, actual if word == "sinusoidal_2d_and_input" else places.hidden)


def test_an_image_is_encoded_the_same_alone_and_padded():
    small, large = torch.ones(1, 2, 3, dtype=torch.bool), torch.zeros(1, 4, 5, dtype=torch.bool)
    large[:, :2, :3] = True
    alone, padded = (image().query_key(embedded(mask)) for mask in (small, large))
    assert torch.equal(alone[0], padded[0][large.flatten()])
    assert torch.equal(alone, image().query_key(embedded(small)._replace(padding_mask=None)))


def test_positions_of_an_image_are_those_of_stock_detr():
    mask = torch.ones(2, 7, 9, dtype=torch.bool)
    mask[1, 5:] = False
    stock = DetrSinePositionEmbedding(6, normalize=True)((2, 12, 7, 9), "cpu", torch.float32, mask)
    ours = image().query_key(embedded(mask, torch.float32))
    assert (ours - stock.flatten(2).transpose(1, 2)).abs().max() <= 1e-6


def test_each_object_query_has_a_vector_of_its_own():
    module = encoding(QkvDetectionDecoderConfig(hidden_size=6, num_attention_heads=3, num_queries=4))
    vectors = module.query_key(Embedded(torch.zeros(2, 4, 6)))
    assert torch.equal(vectors, torch.stack([module.table.weight] * 2))
    assert dict(module.named_buffers()) == {}
