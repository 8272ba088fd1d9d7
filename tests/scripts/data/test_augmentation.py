"""Changes of training images are what they say, and follow from an image's place."""

import torch

from qkv.scripts.data.image import affine, augment
from qkv.scripts.recipes.schema import Augmentation
from recipes import recipe_of

FURTHEST = torch.ones(6, 2)


def test_a_distortion_of_nothing_changes_nothing() -> None:
    pixels = torch.randn(2, 3, 8, 8)
    assert (affine(pixels, Augmentation(), FURTHEST) - pixels).abs().max() < 1e-5


def test_a_shift_is_counted_in_pixels() -> None:
    image = torch.rand(2, 1, 8, 6)
    moved = affine(image, Augmentation(shift=1.0), FURTHEST)
    assert (moved[:, :, :-1, :-1] - image[:, :, 1:, 1:]).abs().max() < 1e-5
    dark = image.amin((1, 2, 3), keepdim=True)
    assert (moved[:, :, -1:] - dark).abs().max() < 1e-5 and (moved[..., -1:] - dark).abs().max() < 1e-5


def test_a_rotation_by_a_right_angle_is_one() -> None:
    image = torch.rand(2, 1, 8, 8)
    turned = affine(image, Augmentation(degrees=90), FURTHEST)
    assert (turned - image.rot90(1, (2, 3))).abs().max() < 1e-4


def test_a_place_decides_the_change_and_evaluation_has_none() -> None:
    recipe, images = recipe_of(augment={"degrees": 10, "shift": 1, "scale": 0.1}), torch.rand(2, 3, 8, 8)
    both, one = augment(images, [3, 4], recipe), augment(images[1:], [4], recipe)
    assert torch.equal(both[1:], one) and not torch.equal(augment(images[1:], [5], recipe), one)
    assert torch.equal(augment(images, None, recipe), images)
