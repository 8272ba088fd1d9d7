"""Images that no detector can read, and labels that it cannot learn: one sentence each."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from qkv.modeling import QkvDetectionForObjectDetection


def given(**changes: Any) -> dict[str, Any]:
    return {**tiny.objects(), **changes}


def labels(**changes: Tensor) -> dict[str, Any]:
    first, second = tiny.objects()["labels"]
    return given(labels=[{**first, **changes}, second])


def broken() -> Tensor:
    pixels = tiny.padded_images()["pixel_values"]
    pixels[0, 0, 0, 0] = float("nan")
    return pixels


NO_TENSOR = r"pixel_values of shape None are not \(batch, 3, height, width\); check num_channels"
CASES = [
    (given(pixel_values=None), NO_TENSOR),
    (given(pixel_values=torch.zeros(2, 1, 8, 56)), r"pixel_values of shape \(2, 1, 8, 56\) are not \(batch, 3,"),
    (given(pixel_values=torch.zeros(2, 3, 8, 0)), r"pixel_values of shape \(2, 3, 8, 0\) are not"),
    (given(pixel_values=broken()), "pixel_values contain NaN or infinity; check the image processor's normalisation"),
    (
        given(pixel_mask=torch.ones(2, 8, 55)),
        r"pixel_mask of shape \(2, 8, 55\) does not fit images of \(2, 3, 8, 56\)",
    ),
    (given(pixel_mask=torch.zeros(2, 8, 56)), "pixel_mask has padding at the upper left; pad images at the right"),
    (given(labels=torch.zeros(2)), "labels are a Tensor for 2 images; give a list of one dict for each image"),
    (given(labels=tiny.objects()["labels"][:1]), "labels are 1 for 2 images; give a list of one dict"),
    (given(labels=[{}, {}]), r"labels\[0\] have no 'class_labels'; the image processor makes them of COCO"),
    (labels(boxes=torch.rand(3, 4)), r"labels\[0\] have boxes of shape \(3, 4\) for class_labels of shape \(2,\)"),
    (labels(class_labels=torch.tensor([0.0, 1.0])), "give .objects, 4. for .objects,. whole numbers"),
    (labels(class_labels=torch.tensor([0, 3])), r"class_labels of labels\[0\] contain 3, outside the labels of 3"),
    (labels(boxes=torch.tensor([[10.0, 10, 30, 40]] * 2)), r"boxes of labels\[0\] reach from 10 to 40; give center x"),
    (given(num_items_in_batch=3), "num_items_in_batch=3 is one number, but boxes are divided by objects and classes"),
]


@pytest.mark.parametrize(("inputs", "sentence"), CASES)
def test_one_sentence_says_what_is_wrong(inputs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        QkvDetectionForObjectDetection(tiny.detector("patches"))(**inputs)
