"""Figures draw the weights that the page has."""

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

import qkv
import tiny
from families.attentions import built
from qkv.scripts.attention_view.figures import draw_view


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What is drawn as an image."""
    shown: list[np.ndarray] = []
    imshow = Axes.imshow

    def spy(self: Axes, image: np.ndarray, **options: object) -> object:
        shown.append(np.asarray(image))
        return imshow(self, image, **options)

    monkeypatch.setattr(Axes, "imshow", spy)
    return shown


@pytest.mark.parametrize("form", ["png", "svg"])
def test_each_stack_is_a_matrix_of_its_last_layer_and_its_entropy(form: str, drawn: list[np.ndarray]) -> None:
    model, inputs, _ = built("qkv transformer")
    view = qkv.attend(model, inputs)
    content = draw_view("with $a dollar", view.stacks, form)
    assert content.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert len(drawn) == 6
    for stack, matrix, entropy in zip(view.stacks, drawn[::2], drawn[1::2], strict=True):
        np.testing.assert_array_equal(matrix, stack.weights[-1].mean(0))
        np.testing.assert_array_equal(entropy, stack.entropy)


def test_patches_are_drawn_over_their_picture(drawn: list[np.ndarray]) -> None:
    torch.manual_seed(0)
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder())
    (stack,) = qkv.attend(model, tiny.images()).stacks
    draw_view("", [stack], "png")
    picture, weights, _ = drawn
    assert picture.ndim == 2 and weights.shape == stack.keys.grid
    np.testing.assert_array_equal(weights.flatten(), stack.weights[-1].mean(0)[0, stack.keys.prefix :])
