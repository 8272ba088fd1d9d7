"""Boxes of a padded image are parts of the image again."""

import torch

from qkv.scripts.data.objects import own_boxes


def test_boxes_are_parts_of_the_image_without_its_padding() -> None:
    mask = torch.zeros(2, 10, 20, dtype=torch.long)
    mask[0], mask[1, :5, :8] = 1, 1
    boxes = torch.tensor([[0.2, 0.25, 0.1, 0.2]])
    batch = {"pixel_mask": mask, "labels": [{"boxes": boxes, "class_labels": torch.tensor([1])}] * 2}
    whole, padded = own_boxes(batch)["labels"]
    assert torch.equal(whole["boxes"], boxes)
    assert torch.allclose(padded["boxes"], torch.tensor([[0.5, 0.5, 0.25, 0.4]]))
    assert torch.equal(padded["class_labels"], torch.tensor([1])) and torch.equal(batch["labels"][1]["boxes"], boxes)
