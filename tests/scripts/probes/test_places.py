"""Where the tokens of a stack are: one after the other, in the grid of an image, or nowhere."""

from typing import Any

import pytest
import torch

import qkv
import tiny
from families.attentions import built
from qkv.scripts.probes.places import patch_grid, places_of, recorded_grids, stack_of


def places(model: Any, stack: str, tokens: int, batch: dict[str, Any]) -> Any:
    with recorded_grids(model) as grids, torch.no_grad():
        model.eval()(**batch)
    return places_of(model, stack, tokens, batch, grids)


def test_tokens_of_a_text_follow_each_other() -> None:
    own = places(qkv.QkvDecoderModel(tiny.decoder()), "decoder", 9, tiny.text())
    assert own.prefix == 0 and own.places[:, 0].tolist() == list(range(9))


@pytest.mark.parametrize(("kind", "prefix"), [("vit", 1), ("deit", 2), ("mean", 0)])
def test_patches_of_an_image_stand_in_a_grid(kind: str, prefix: int) -> None:
    own = places(qkv.QkvImageEncoderModel(tiny.image_encoder(kind)), "encoder", prefix + 12, tiny.images())
    assert own.prefix == prefix and own.places.tolist() == [[row, column] for row in range(3) for column in range(4)]


def test_an_image_of_another_size_has_another_grid() -> None:
    model = qkv.QkvImageEncoderModel(tiny.image_encoder("dinov2"))
    own = places(model, "encoder", 1 + 20, tiny.images(size=(20, 16)))
    assert own.places[-1].tolist() == [4, 3]


def test_models_of_transformers_say_so_by_their_config() -> None:
    model, batch, _ = built("stock vit")
    own = places(model, "encoder", 17, batch)
    assert own.prefix == 1 and own.places[-1].tolist() == [3, 3]
    clip, batch, _ = built("stock clip")
    assert places(clip, "image", 17, batch).prefix == 1
    assert places(clip, "text", 9, batch).places.shape == (9, 1)


def test_object_queries_are_nowhere_and_a_backbone_of_transformers_does_not_say() -> None:
    model, batch, _ = built("qkv detr")
    assert places(model, "decoder", tiny.QUERIES, batch) is None
    assert places(model, "encoder", tiny.SOURCE, batch).places.shape == (tiny.SOURCE, 2)
    model, batch, _ = built("stock detr")
    assert places(model, "encoder", tiny.SOURCE, batch) is None is places(model, "decoder", tiny.QUERIES, batch)


def test_a_grid_that_does_not_fit_the_tokens_is_none() -> None:
    model, batch, _ = built("stock vit")
    assert places_of(model, "encoder", 40, batch, {}) is None
    assert patch_grid(model.config, None) is None


def test_the_stack_of_a_module_is_that_of_the_layers_near_it() -> None:
    model = qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())
    assert stack_of(model, "model.encoder.position") == "encoder"
    assert stack_of(model, "model.decoder.position.table") == "decoder"
    clip = qkv.QkvDualEncoderModel(tiny.dual_encoder())
    assert [stack_of(clip, path) for path in ("text_model", "vision_model")] == ["text", "image"]
