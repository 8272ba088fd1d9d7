"""Vision transformers by the numbers of their papers, and their losses by hand."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedModel

import tiny
from qkv.configuration import presets
from qkv.modeling import (
    QkvImageEncoderForImageClassification,
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)

# sources.md, section 5; DeiT-S as timm and the paper's table 1 (22M) have it.
PARAMETERS = [
    ("vit_base_16", {}, 86_567_656),
    ("vit_large_16", {}, 304_326_632),
    ("deit_small_16", {}, 22_050_664),
    ("deit_small_16", {"distillation_token": True, "pooling": "distilled"}, 22_436_432),
]


@pytest.mark.parametrize(("preset", "fields", "count"), PARAMETERS)
def test_the_number_of_parameters_is_the_papers(preset: str, fields: dict, count: int) -> None:
    with torch.device("meta"):
        model = QkvImageEncoderForImageClassification(getattr(presets, preset)(**fields))
    assert model.num_parameters() == count


def exact(model_class: Any, kind: str, **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(model_class(tiny.image_encoder(kind, **fields))).double().eval()


def pictures() -> torch.Tensor:
    return tiny.images()["pixel_values"].double()


def test_patches_are_read_row_by_row_behind_the_class_token() -> None:
    model, pixels = exact(QkvImageEncoderModel, "vit", num_hidden_layers=1), pictures()
    frontend = model.embed_tokens
    tokens = frontend(pixels).hidden
    assert tokens.shape == (tiny.BATCH, 1 + 3 * 4, 32)
    assert torch.equal(tokens[:, :1], frontend.class_token.expand(tiny.BATCH, -1, -1))
    for row in range(3):
        for column in range(4):
            patch = pixels[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten(1)
            weight, bias = frontend.projection.weight.flatten(1), frontend.projection.bias
            assert_close(tokens[:, 1 + 4 * row + column], patch @ weight.T + bias)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", tiny.IMAGE_ENCODERS)
def test_images_are_classified_by_what_is_pooled(kind: str, smoothing: float) -> None:
    model = exact(QkvImageEncoderForImageClassification, kind, label_smoothing=smoothing)
    labels = torch.tensor([2, 0])
    output, hidden = model(pictures(), labels=labels), model.model(pixel_values=pictures()).last_hidden_state
    assert output.logits.shape == (tiny.BATCH, tiny.LABELS)
    head = model.classifier
    expected = {
        "vit": lambda: head(hidden[:, 0]),
        "deit": lambda: (head.class_classifier(hidden[:, 0]) + head.distillation_classifier(hidden[:, 1])) / 2,
        "mean": lambda: head(hidden.mean(1)),
        "dinov2": lambda: head(torch.cat((hidden[:, 0], hidden[:, 1:].mean(1)), dim=-1)),
    }[kind]()
    assert_close(output.logits, expected)
    chances = output.logits.log_softmax(-1)
    surprises = [
        (1 - smoothing) * -row[label] - smoothing * row.mean() for row, label in zip(chances, labels, strict=True)
    ]
    assert_close(output.loss, sum(surprises) / tiny.BATCH)


def test_masked_patches_are_painted_and_only_they_are_judged() -> None:
    model, pixels = exact(QkvImageEncoderForMaskedImageModeling, "vit"), pictures()
    masked = tiny.masked_patches()["bool_masked_pos"]
    output = model(pixels, masked)
    assert output.reconstruction.shape == pixels.shape
    errors = []
    for image, picture, hidden in zip(output.reconstruction, pixels, masked.view(tiny.BATCH, 3, 4), strict=True):
        for row, column in hidden.nonzero().tolist():
            window = (slice(None), slice(4 * row, 4 * row + 4), slice(4 * column, 4 * column + 4))
            errors.append((image[window] - picture[window]).abs().mean())
    # The count is made safe against no mask at all by 1e-5 pixels, as in SimMIM's code.
    pixels_masked = 16 * len(errors)
    assert_close(output.loss, sum(errors) / len(errors) * pixels_masked / (pixels_masked + 1e-5))
    changed = pixels.clone()
    changed[:, :, :4, :4] += 1.0  # patch 0 is masked: nobody sees it, and only the loss knows it
    assert masked[0, 0] and torch.equal(model(changed, masked).reconstruction[0], output.reconstruction[0])
    assert model(pixels).loss is None


def test_masked_patches_of_a_step_count_together() -> None:
    """One patch hidden in the first image and four in the second: the mean over both is no mean of their means."""
    model, pixels = exact(QkvImageEncoderForMaskedImageModeling, "vit"), pictures()
    masked = (torch.arange(12) < torch.tensor([[1], [4]])).bool()
    whole = model(pixel_values=pixels, bool_masked_pos=masked, num_items_in_batch=5)
    assert_close(whole.loss, model(pixel_values=pixels, bool_masked_pos=masked).loss, rtol=1e-6, atol=0)
    gradients = torch.autograd.grad(whole.loss, list(model.parameters()), allow_unused=True)
    parts = [
        model(pixel_values=pixels[[row]], bool_masked_pos=masked[[row]], num_items_in_batch=torch.tensor(5)).loss
        for row in range(2)
    ]
    assert_close(sum(parts), whole.loss, rtol=0, atol=1e-12)
    assert abs(parts[0] * 5 - parts[1] * 5 / 4) > 1e-3
    for one, other in zip(
        torch.autograd.grad(sum(parts), list(model.parameters()), allow_unused=True), gradients, strict=True
    ):
        assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("learned", [True, False])
def test_a_base_model_may_have_a_mask_token_of_its_own(learned: bool) -> None:
    model = tiny.jitter(QkvImageEncoderModel(tiny.image_encoder(mask_token=learned))).eval()
    inputs = tiny.masked_patches()
    inputs.pop("labels", None)
    assert (model.embed_tokens.mask_token is not None) == learned
    if learned:
        masked, plain = model(**inputs), model(pixel_values=inputs["pixel_values"])
        assert not torch.allclose(masked.last_hidden_state, plain.last_hidden_state)
    else:
        with pytest.raises(ValueError, match="bool_masked_pos needs a mask token"):
            model(**inputs)
