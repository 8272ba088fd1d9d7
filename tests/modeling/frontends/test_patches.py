"""Images become the vectors the papers say; impossible ones are refused by name."""

import pytest
import torch

import reference
from comparison import assert_same, draw, jittered, vision
from errors import raises_sentence
from qkv.modeling.frontends import FRONTENDS


def patches(**fields):
    frontend = jittered(FRONTENDS["patches"](vision(**fields)))
    frontend.mask_token = torch.nn.Parameter(draw(1, 1, 6).detach())
    return frontend


SPECIAL = {
    "none": {"class_token": False, "pooling": "mean"},
    "class": {},
    "distillation": {"class_token": False, "distillation_token": True, "pooling": "mean"},
    "both": {"distillation_token": True},
    "registers": {"distillation_token": True, "num_register_tokens": 3},
}
NAMES = {"none": [], "class": ["class_token"], "distillation": ["distillation_token"]}
NAMES["registers"] = ["class_token", "distillation_token", "register_tokens"]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("size", [(6, 10), (4, 14), (2, 2)])
@pytest.mark.parametrize("masked", [False, True], ids=["all seen", "some masked"])
def test_patches(special, size, masked):
    frontend, pixels = patches(**SPECIAL[special]), draw(3, 3, *size)
    expected = reference.patch_embeddings(pixels, frontend.projection.weight, frontend.projection.bias)
    hidden = torch.arange(3 * expected.shape[1]).view(3, -1) % 3 == 1 if masked else None
    if masked:
        expected = torch.stack(
            [
                torch.stack([frontend.mask_token[0, 0] if gone else vector for vector, gone in zip(*row, strict=True)])
                for row in zip(expected, hidden, strict=True)
            ]
        )
    tokens = [getattr(frontend, name) for name in NAMES.get(special, ["class_token", "distillation_token"])]
    expected = torch.stack([torch.cat([*(token[0] for token in tokens), row]) for row in expected])
    leaves = [frontend.projection.weight, frontend.projection.bias, *tokens]
    actual = frontend(pixels, bool_masked_pos=hidden, interpolate_pos_encoding=True)
    assert actual.grid == (size[0] // 2, size[1] // 2)
    assert_same(actual.hidden, expected, pixels, *leaves, *([frontend.mask_token] if masked else []))


@pytest.mark.parametrize("word", [{"position": "grid"}, {"pattern": "row"}, {"pattern": "column"}], ids=str)
def test_rows_of_another_length_are_refused_where_they_count(word):
    ((name, value),) = word.items()
    frontend = patches(**word)
    assert frontend(draw(1, 3, 4, 10), interpolate_pos_encoding=True).grid == (2, 5)
    with raises_sentence("4x14", "7", f"{name}={value!r}", "5", "image_size=[6, 10]"):
        frontend(draw(1, 3, 4, 14), interpolate_pos_encoding=True)
