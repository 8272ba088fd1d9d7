"""Detectors: object queries in any order, sinusoids of images, auxiliary losses."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import qkv
import tiny
from qkv.modeling import QkvDetectionForObjectDetection

PLAIN = {"residual_dropout": 0.0, "attention_dropout": 0.0}


def build(kind: str = "patches", **fields: Any) -> QkvDetectionForObjectDetection:
    torch.manual_seed(0)
    return tiny.jitter(QkvDetectionForObjectDetection(tiny.detector(kind, **{**PLAIN, **fields}))).eval()


def placed(word: str = "sinusoidal_2d", **fields: Any) -> QkvDetectionForObjectDetection:
    """With patches, so that a token sees nothing but its own pixels, and with positions."""
    return build("patches", encoder={"position": word}, **fields)


def picture(height: int, width: int, seed: int = 1) -> Tensor:
    return torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_object_queries_are_told_apart_by_their_vectors_alone() -> None:
    model, image = placed(), picture(13, 21)
    before = model(image)
    order = torch.tensor([3, 0, 4, 1, 2])
    table = model.model.decoder.position.table.weight
    table.copy_(table[order].clone())
    assert_close(model(image).logits, before.logits[:, order])
    table.copy_(table[:1].expand_as(table).clone())
    same = model(image).logits
    assert_close(same, same[:, :1].expand_as(same))


@torch.no_grad()
def test_object_queries_that_are_masked_are_read_by_no_other_as_in_detr() -> None:
    model = build("detr")
    stock = qkv.to_transformers(model).eval()
    image, mask = picture(24, 32), torch.tensor([[1, 1, 0, 1, 0]])
    masked = model(image, decoder_attention_mask=mask)
    assert_close(masked.logits, stock(image, decoder_attention_mask=mask).logits, atol=1e-5, rtol=1e-5)
    assert (masked.logits - model(image).logits).abs().max() > 1e-3
    table = model.model.decoder.position.table.weight
    table[~mask[0].bool()] += 1
    kept = mask[0].bool()
    assert torch.equal(model(image, decoder_attention_mask=mask).logits[:, kept], masked.logits[:, kept])


def test_the_input_of_every_part_can_take_a_gradient() -> None:
    model = build("detr")
    model.enable_input_require_grads()
    assert model.model.encoder.get_input_embeddings() is model.get_input_embeddings()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert model(picture(24, 32)).logits.requires_grad


@torch.no_grad()
def test_without_positions_places_are_a_set_and_with_them_they_are_not() -> None:
    image = picture(16, 24)
    swapped = torch.cat((image[..., 8:], image[..., :8]), -1)
    for model, blind in ((build(), True), (placed(), False), (placed("sinusoidal_2d_and_input"), False)):
        assert torch.allclose(model(image).logits, model(swapped).logits, atol=1e-5) == blind


def test_earlier_layers_answer_as_a_shallower_model_would() -> None:
    deep = build("detr", num_hidden_layers=3)
    inputs = tiny.objects()
    with torch.no_grad():
        output = deep(**inputs)
        for depth in (1, 2):
            shallow = copy.deepcopy(deep)
            shallow.model.decoder.layers = deep.model.decoder.layers[:depth]
            shallow.model.decoder.config.num_hidden_layers = depth
            answer = shallow(**inputs)
            earlier = output.auxiliary_outputs[depth - 1]
            assert_close(earlier["logits"], answer.logits)
            assert_close(earlier["pred_boxes"], answer.pred_boxes)
    names = ("loss_ce", "loss_bbox", "loss_giou")
    weights = (1, deep.config.bbox_loss_coefficient, deep.config.giou_loss_coefficient)
    total = sum(output.loss_dict[f"{n}{s}"] * w for n, w in zip(names, weights, strict=True) for s in ("", "_0", "_1"))
    assert_close(total, output.loss)


def test_without_auxiliary_loss_the_last_layer_alone_is_asked() -> None:
    output = build("detr", auxiliary_loss=False)(**tiny.objects())
    assert output.auxiliary_outputs is None and set(output.loss_dict) == {"loss_ce", "loss_bbox", "loss_giou"}


@pytest.mark.parametrize("kind", ["detr", "patches"])
def test_images_of_any_size_are_seen(kind: str) -> None:
    for size in ((1, 1), (5, 97)):
        output = build(kind)(picture(*size))
        assert output.pred_boxes.isfinite().all() and ((output.pred_boxes >= 0) & (output.pred_boxes <= 1)).all()


def test_a_backbone_of_any_kind_records_what_it_gives_once() -> None:
    backbone = {"model_type": "convnext", "hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2}
    model = build("detr", backbone_config=backbone)
    image = picture(16, 24)
    plain = model(image).logits
    assert torch.equal(model(image, output_hidden_states=True).logits, plain)
    assert torch.equal(model(image).logits, plain)
