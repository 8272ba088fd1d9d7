"""Figures of a trained model's attention: they are drawn of the values given, in the places promised."""

from pathlib import Path

import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image

import qkv
from qkv.scripts.attention_view.run_figures import draw_alignment, draw_attention


def test_attention_is_drawn_for_each_image_and_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    imshow = Axes.imshow

    def spy(self: Axes, image: object, **options: object) -> object:
        shown.append(image)
        return imshow(self, image, **options)

    monkeypatch.setattr(Axes, "imshow", spy)
    config = qkv.QkvImageEncoderConfig(
        image_size=[4, 6], patch_size=2, num_channels=3, hidden_size=8, num_hidden_layers=2,
        num_attention_heads=2, num_labels=3,
    )  # fmt: skip
    model = qkv.QkvImageEncoderForImageClassification(config).eval()
    pixels = torch.randn(3, 3, 4, 6)
    draw_attention(model, pixels, ["a", "b", "c"], tmp_path / "attention.png")
    expected = model(pixel_values=pixels, output_attentions=True).attentions
    assert len(shown) == 3 * (1 + 2)
    assert torch.allclose(torch.tensor(shown[0]), pixels[0].mean(0))
    assert torch.allclose(torch.tensor(shown[2]), expected[1][0, :, 0, 1:].mean(0).view(2, 3))
    assert Image.open(tmp_path / "attention.png").size > (100, 100)


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_the_alignment_is_drawn_of_real_tokens(attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(Axes, "imshow", lambda self, image, **options: shown.append(image))
    config = qkv.QkvRecurrentConfig(vocab_size=9, hidden_size=8, attention=attention)
    model = qkv.QkvRecurrentForConditionalGeneration(config).eval()
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 1], [8, 1, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "labels": torch.tensor([[6, 1, -100], [7, 8, 1]]),
    }
    draw_alignment(model, batch, lambda tokens: [str(token) for token in tokens.tolist()], tmp_path / "alignment.png")
    (expected,) = model(**batch, output_attentions=True).cross_attentions
    assert [tuple(image.shape) for image in shown] == [(2, 4), (3, 2)]
    assert (
        torch.allclose(torch.tensor(shown[1]), expected[1, 0, :3, :2].detach(), atol=1e-6)
        and (tmp_path / "alignment.png").is_file()
    )
