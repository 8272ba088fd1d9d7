"""Texts and images meet in one space, and chunks of a batch make the whole."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import tiny
from errors import raises_sentence
from qkv.modeling import QkvDualEncoderModel
from qkv.modeling.modeling_dual_encoder import HIGHEST_LOGIT_SCALE

PLAIN = {"embedding_dropout": 0.0, "attention_dropout": 0.0, "residual_dropout": 0.0}


def build(kind: str = "clip", **fields: Any) -> QkvDualEncoderModel:
    torch.manual_seed(0)
    return tiny.jitter(QkvDualEncoderModel(tiny.dual_encoder(kind, **{**PLAIN, **fields}))).eval()


def rows(count: int = 5, length: int = 9) -> dict[str, Tensor]:
    """Texts of the same length, each with its end, and an image for each."""
    inputs = tiny.text(batch=count, length=length)
    ids = inputs["input_ids"].clone()
    ids[torch.arange(count), inputs["attention_mask"].sum(-1) - 1] = tiny.END
    return {**inputs, "input_ids": ids, **tiny.images(batch=count)}


def test_projections_start_by_their_width_and_the_scale_as_the_config_says() -> None:
    model = QkvDualEncoderModel(tiny.dual_encoder(hidden_size=96, projection_dim=64, logit_scale_init_value=1.5))
    for projection in (model.text_projection, model.visual_projection):
        assert abs(projection.weight.std().item() * 96**0.5 - 1) < 0.1
    assert model.logit_scale == 1.5 and model.logit_bias is None
    assert QkvDualEncoderModel(tiny.dual_encoder("siglip")).logit_bias == -10


@torch.no_grad()
def test_scores_are_cosines_times_the_scale() -> None:
    model, inputs = build(), rows()
    output = model(**inputs)
    texts = model.get_text_features(inputs["input_ids"], inputs["attention_mask"]).pooler_output
    images = model.get_image_features(inputs["pixel_values"]).pooler_output
    cosines = torch.nn.functional.cosine_similarity(images[:, None], texts[None], dim=-1)
    assert_close(output.logits_per_image, cosines * model.logit_scale.exp())
    assert torch.equal(output.logits_per_text, output.logits_per_image.T)
    for embeds in (output.text_embeds, output.image_embeds):
        assert_close(embeds.norm(dim=-1), torch.ones(5))
    assert output.loss is None
    assert model.get_image_features(inputs["pixel_values"], return_dict=False)[1].shape == (5, 20)


@torch.no_grad()
@pytest.mark.parametrize("images", [1, 3])
def test_any_number_of_texts_is_compared_with_any_number_of_images(images: int) -> None:
    model, inputs = build(), rows()
    inputs["pixel_values"] = inputs["pixel_values"][:images]
    assert model(**inputs).logits_per_image.shape == (images, 5)
    with raises_sentence(f"{images}", "5"):
        model(**inputs, return_loss=True)


def test_texts_without_an_end_or_an_image_are_refused() -> None:
    inputs = rows()
    with raises_sentence("pixel_values", "get_text_features"):
        build()(inputs["input_ids"])
    inputs["input_ids"][2] = 5
    with raises_sentence("input_ids", "eos_token_id=3", "pooling='end'"):
        build()(**inputs)


@torch.no_grad()
def test_scores_with_a_bias_are_of_vectors_that_nothing_projects() -> None:
    model, inputs = build("siglip"), rows()
    model.logit_bias.fill_(0.7)
    output = model(**inputs, return_loss=True)
    texts, images = output.text_model_output.pooler_output, output.vision_model_output.pooler_output
    cosines = torch.nn.functional.cosine_similarity(images[:, None], texts[None], dim=-1)
    assert_close(output.logits_per_image, cosines * model.logit_scale.exp() + 0.7)
    signs = 2 * torch.eye(5) - 1
    assert_close(output.loss, -(signs * output.logits_per_image).sigmoid().log().sum() / 5)


@torch.no_grad()
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_padding_that_is_read_is_computed_where_it_stands(backend: str) -> None:
    model, inputs = build("siglip"), rows()
    del inputs["pixel_values"]
    padded = inputs["attention_mask"][:, -1] == 0
    assert padded.any()
    model.text_model.set_attn_implementation(backend)
    given = model.get_text_features(**inputs, position_ids=torch.arange(9)[None]).pooler_output
    for wanted in (None, True, False):
        model.remove_padding = wanted
        assert_close(model.get_text_features(**inputs).pooler_output, given)
    inputs["input_ids"][padded, -1] += 1
    assert ((model.get_text_features(**inputs).pooler_output - given).abs().amax(-1) > 1e-3).equal(padded)


# Training -------------------------------------------------------------------------------------------------------------


def learned(model: QkvDualEncoderModel, **inputs: Any) -> tuple[Any, dict[str, Tensor]]:
    """The output in training, and the gradients of its loss."""
    model = copy.deepcopy(model).double().train()
    inputs["pixel_values"] = inputs["pixel_values"].double()
    output = model(**inputs, return_loss=True)
    output.loss.backward()
    return output, {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks_make_the_whole_batch(size: int) -> None:
    asked = {"output_hidden_states": True, "output_attentions": True, "position_ids": torch.arange(9)[None]}
    whole, expected = learned(build(), **rows(), **asked)
    output, found = learned(build(embedding_chunk_size=size), **rows(), **asked)
    for name, value in expected.items():
        assert_close(found[name], value, rtol=0, atol=1e-10, msg=name)
    assert_close(output.loss, whole.loss, rtol=0, atol=1e-10)
    for part in ("text_model_output", "vision_model_output"):
        assert output[part].keys() == whole[part].keys()
        for one, other in zip(output[part].to_tuple(), whole[part].to_tuple(), strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("training", [True, False])
def test_chunks_are_for_training_alone(training: bool) -> None:
    model, sizes = build(embedding_chunk_size=2).train(training), []
    model.vision_model.embed_tokens.register_forward_hook(lambda *args: sizes.append(len(args[2].hidden)))
    loss = model(**rows(), return_loss=True).loss
    assert sizes == ([2, 2, 1] if training else [5])
    loss.backward()
    assert sorted(sizes) == ([1, 1, 2, 2, 2, 2] if training else [5])  # each a second time, on the way back


def test_the_scale_is_taken_back_to_its_limit_in_training() -> None:
    model, inputs = build(logit_scale_init_value=9.0), rows()
    with torch.no_grad():
        assert_close(model(**inputs).logits_per_image.abs().max() > 1000, torch.tensor(True))
        model.logit_scale.fill_(9.0)
    model.train()
    model(**inputs, return_loss=True).loss.backward()
    assert model.logit_scale.item() == pytest.approx(HIGHEST_LOGIT_SCALE) == pytest.approx(math.log(100))
    assert model.logit_scale.grad.abs() > 0  # so that it may come down again
    model.logit_scale.requires_grad_(False).fill_(9.0)
    model(**inputs)
    assert model.logit_scale == 9.0
    free = build("siglip").train()  # judges each score by itself
    free.logit_scale.data.fill_(9.0)
    free(**inputs)
    assert free.logit_scale == 9.0
    assert model.logit_scale == 9.0
