"""Image encoders: masked patches."""

import pytest
import torch
from torch.testing import assert_close

import tiny
from qkv.modeling import (
    QkvImageEncoderForMaskedImageModeling,
    QkvImageEncoderModel,
)


def pictures() -> torch.Tensor:
    return tiny.images()["pixel_values"].double()


def test_masked_patches_of_a_step_count_together() -> None:
    """One patch hidden in the first image and four in the second: the mean over both is no mean of their means."""
    model, pixels = tiny.precise(QkvImageEncoderForMaskedImageModeling, "vit"), pictures()
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
        with pytest.raises(ValueError, match="bool_masked_pos"):
            model(**inputs)
