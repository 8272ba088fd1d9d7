"""Bipartite matching of object queries and labelled objects, and the set loss of DETR.

Boxes are (center x, center y, width, height) as parts of the image's width and height; padding is no part of it.

Shapes: B images, Q object queries, N objects, V classes, the last of which is that there is none.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional as F
from transformers.image_transforms import center_to_corners_format
from transformers.loss.loss_for_object_detection import HungarianMatcher

from ...configuration.configuration_detection import QkvDetectionConfig
from ..checks.images import check_objects
from .loss import Count, together

Objects = Sequence[dict[str, Tensor]]
# For each image the object queries that take an object, and the objects they take.
Pairs = list[tuple[Tensor, Tensor]]


def generalized_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Compute the generalised intersection over union of boxes: 2 x (..., 4) -> (...).

    Shared area by united area, less the part of the smallest box around both that neither covers: from -1 to 1. Boxes
    without any area share nothing.

    Source: Rezatofighi et al. 2019, Generalized Intersection over Union, algorithm 1, https://arxiv.org/abs/1902.09630
    """
    corners: Any = center_to_corners_format  # transformers' annotation is an enum
    one, other = corners(boxes), corners(others)
    sides = (torch.minimum(one, other)[..., 2:] - torch.maximum(one, other)[..., :2]).clamp(min=0)
    around = torch.maximum(one, other)[..., 2:] - torch.minimum(one, other)[..., :2]
    shared, whole = sides.prod(-1), around.prod(-1)
    united = boxes[..., 2:].prod(-1) + others[..., 2:].prod(-1) - shared
    tiny = torch.finfo(boxes.dtype).tiny
    return shared / united.clamp(min=tiny) - (whole - united) / whole.clamp(min=tiny)


@torch.no_grad()
def matched(logits: Tensor, boxes: Tensor, objects: Objects, config: QkvDetectionConfig) -> Pairs:
    """Match object queries with objects at the least cost; objects that outnumber the queries stay out.

    NaN is matched as if it were 0, so that a model that has diverged shows it by its loss.

    Source: Carion et al. 2020, DETR, §3.1, eq. 1 and appendix A.2, https://arxiv.org/abs/2005.12872
    """
    matcher = HungarianMatcher(config.class_cost, config.bbox_cost, config.giou_cost)
    given = [{"class_labels": each["class_labels"].to(logits.device), "boxes": each["boxes"]} for each in objects]
    return matcher({"logits": logits.nan_to_num(), "pred_boxes": boxes.nan_to_num()}, given)


def sums(
    logits: Tensor, boxes: Tensor, objects: Objects, config: QkvDetectionConfig
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum the parts of the loss, class, L1 and GIoU; the last value is the weight of all object queries.

    Source: Carion et al. 2020, DETR, §3.1, eq. 2 and appendix A.2, https://arxiv.org/abs/2005.12872
    """
    pairs = matched(logits, boxes, objects, config)
    none = logits.shape[-1] - 1
    classes = torch.full(logits.shape[:2], none, device=logits.device)
    for row, ((queries, taken), labelled) in enumerate(zip(pairs, objects, strict=True)):
        classes[row, queries] = labelled["class_labels"].to(classes)[taken]
    weights = torch.ones_like(logits[0, 0])
    weights[-1] = config.eos_coefficient
    chosen = torch.cat([row[queries] for row, (queries, _) in zip(boxes, pairs, strict=True)])
    wanted = torch.cat([labelled["boxes"][taken] for labelled, (_, taken) in zip(objects, pairs, strict=True)])
    parts = {
        "loss_ce": F.cross_entropy(logits.transpose(1, 2), classes, weights, reduction="sum"),
        "loss_bbox": (chosen - wanted).abs().sum(),
        "loss_giou": (1 - generalized_iou(chosen, wanted)).sum(),
    }
    return parts, weights[classes].sum()


def set_loss(
    answers: Sequence[tuple[Tensor, Tensor]],
    objects: Objects,
    config: QkvDetectionConfig,
    num_items_in_batch: Count = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the set loss and its parts by name: answers [(logits (B, Q, V), boxes (B, Q, 4)), …].

    The last answer is the model's, others are of earlier layers, each matched by itself. Boxes are divided by
    the number of objects, classes by the weight of all queries, over all processes. With `num_items_in_batch`, the
    objects and images of the whole step as a tensor (2,), parts of a step add up to the loss of one big batch.

    Source: Carion et al. 2020, DETR, §3.1, eq. 2 and appendix A.2, https://arxiv.org/abs/2005.12872
    """
    check_objects(objects, answers[-1][0], num_items_in_batch)
    precise = torch.promote_types(answers[-1][0].dtype, torch.float32)
    answers = [(logits.to(precise), boxes.to(precise)) for logits, boxes in answers]
    objects = [{**each, "boxes": each["boxes"].to(answers[-1][1])} for each in objects]
    parts: dict[str, Tensor] = {}
    total = answers[-1][0].new_zeros(())
    coefficients = {"ce": 1.0, "bbox": config.bbox_loss_coefficient, "giou": config.giou_loss_coefficient}
    for index, (logits, boxes) in enumerate([answers[-1], *answers[:-1]]):
        summed, weight = sums(logits, boxes, objects, config)
        count, weight = counts(objects, weight, logits, config, num_items_in_batch)
        for (name, value), coefficient in zip(summed.items(), coefficients.values(), strict=True):
            part = value / (weight if name == "loss_ce" else count)
            parts[f"{name}_{index - 1}" if index else name] = part.detach()
            total = total + coefficient * part
    return total, parts


def counts(
    objects: Objects, weight: Tensor, logits: Tensor, config: QkvDetectionConfig, num_items_in_batch: Count
) -> tuple[Tensor, Tensor]:
    """Return the divisors of boxes and of classes."""
    own = torch.stack((weight.new_tensor(float(sum(len(each["boxes"]) for each in objects))), weight))
    if isinstance(num_items_in_batch, Tensor):
        boxes, images = num_items_in_batch.to(own).unbind()
        return boxes.clamp(min=1), boxes + config.eos_coefficient * (images * logits.shape[1] - boxes)
    if together():
        # The mean over processes, of whose gradients the mean is taken as well.
        distributed.all_reduce(own)
        own = own / distributed.get_world_size()
    return own[0].clamp(min=1), own[1]
