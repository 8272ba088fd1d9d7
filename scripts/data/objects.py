"""Where are the objects of an image, whatever it was padded to? As parts of the image itself, as a model has them.

transformers' image processor of DETR gives boxes as parts of the padded image, and reads those of a model as parts of
the image alone: a model trained on what it gives finds objects of padded images in the wrong place.
"""

from typing import Any

import torch


def own_boxes(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch of `DetrImageProcessor` with labels, whose boxes become parts of each image without its padding.

    Shapes: pixel_mask (B, height, width), boxes (N, 4) of each image, center x, center y, width, height
    """
    mask = batch["pixel_mask"]
    height, width = mask.shape[1:]
    labels = []
    for real, found in zip(mask, batch["labels"], strict=True):
        rows, columns = int(real[:, 0].sum()), int(real[0].sum())
        scale = torch.tensor([width / columns, height / rows] * 2)
        labels.append({**found, "boxes": found["boxes"] * scale.to(found["boxes"])})
    return {**batch, "labels": labels}
