"""Checks of images and of the objects labelled in them.

Shapes: B images, C channels, N objects, Q object queries, V classes.
"""

from collections.abc import Sequence

from torch import Tensor

from .inputs import can_read_values, check_marks, check_range, check_shape


def check_pixels(pixel_values: object, pixel_mask: Tensor | None, num_channels: int) -> None:
    """Check that images (B, C, height, width) hold numbers, and have their padding right and below."""
    shape = tuple(pixel_values.shape) if isinstance(pixel_values, Tensor) else ()
    if not isinstance(pixel_values, Tensor) or len(shape) != 4 or shape[1] != num_channels or 0 in shape[2:]:
        wanted = f"(batch, {num_channels}, height, width)"
        raise ValueError(f"pixel_values of shape {shape} are not {wanted}; use the model's image processor")
    if can_read_values(pixel_values) and not pixel_values.isfinite().all():
        raise ValueError("pixel_values contain NaN or infinity; check the image processor's normalisation")
    if pixel_mask is None:
        return
    check_shape("pixel_mask", pixel_mask, (shape[0], *shape[2:]), "the pixels")
    check_marks("pixel_mask", pixel_mask)
    if can_read_values(pixel_mask) and not pixel_mask[:, 0, 0].all():
        raise ValueError("pixel_mask has padding at the upper left; pad images at the right and below, as DETR does")


def check_objects(objects: object, logits: Tensor, count: Tensor | int | None) -> None:
    """Check that each image has a dict of its objects: classes `class_labels` (N,) and boxes `boxes` (N, 4)."""
    if count is not None and not (isinstance(count, Tensor) and count.shape == (2,)):
        mend = "torch.tensor([objects, images]) of the step"
        raise ValueError(f"num_items_in_batch={count} counts no objects and queries apart; give {mend}")
    if not isinstance(objects, Sequence) or len(objects) != len(logits):
        kind = f"{len(objects)}" if isinstance(objects, Sequence) else f"a {type(objects).__name__}"
        raise ValueError(f"labels are {kind} for {len(logits)} images; give a list of one dict for each image")
    for row, labelled in enumerate(objects):
        check_image_objects(f"labels[{row}]", labelled["class_labels"], labelled["boxes"], logits.shape[-1] - 1)


def check_image_objects(name: str, classes: Tensor, boxes: Tensor, num_labels: int) -> None:
    """Check the labelled objects of one image: whole numbers (N,), parts of the image (N, 4)."""
    check_shape(f"boxes of {name}", boxes, (*classes.shape[:1], 4), "class_labels and their 4 numbers")
    check_range(f"class_labels of {name}", classes, num_labels, "labels", "set num_labels")
    if can_read_values(boxes) and boxes.numel() and not bool(((boxes >= 0) & (boxes <= 1)).all()):
        reach = f"boxes of {name} reach from {float(boxes.min()):g} to {float(boxes.max()):g}"
        raise ValueError(f"{reach}; give center x, center y, width and height as parts of the image, from 0 to 1")
