"""captum attributes a prediction to the tokens and pixels it was made from."""

from collections.abc import Callable

import client_models as models
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification, PreTrainedModel

import tiny

attribution = pytest.importorskip("captum.attr", reason="`make clients` installs it", exc_type=ImportError)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_tokens(kind: str, side_by_side: Callable[..., None]) -> None:
    ids = tiny.text(batch=2, length=9)["input_ids"].clamp(min=4)

    def attribute(model: PreTrainedModel) -> Tensor:
        def score(ids: Tensor) -> Tensor:
            return model(ids).logits[:, 0]

        read = attribution.LayerIntegratedGradients(score, model.get_input_embeddings())
        found, rest = read.attribute(ids, torch.ones_like(ids) * 4, return_convergence_delta=True, n_steps=200)
        assert rest.abs().max() < 0.05 * found.sum((1, 2)).abs().max() + 0.01
        return found

    given = models.both(kind, AutoModelForSequenceClassification, num_labels=3)
    side_by_side("captum", "integrated gradients of tokens", attribute, *given, rtol=1e-3)


def test_pixels(side_by_side: Callable[..., None]) -> None:
    images = tiny.images(size=(16, 16))["pixel_values"]

    def attribute(model: PreTrainedModel) -> Tensor:
        return attribution.Saliency(lambda pixels: model(pixels).logits).attribute(images.clone(), target=1)

    given = models.both("vit", AutoModelForImageClassification, num_labels=3)
    side_by_side("captum", "saliency of pixels", attribute, *given)
