"""Object detection: boxes and classes, which a detector predicts as a set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps
from torch import Tensor
from transformers import DetrImageProcessorPil
from transformers.image_transforms import center_to_corners_format

from qkv.scripts.common.extras import require
from qkv.scripts.data.boxes import Box, boxes_and_classes, check_objects
from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.image import turned_box, unpadded_boxes
from qkv.scripts.data.image_data import ObjectData
from qkv.scripts.data.pretrained import pretrained_folder
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.task import Answer, Task, grid, predict

MAX_RATIO = 1333 / 800  # the longest side of an image over `shortest_edge`, as in DETR
DRAWN, PER_ROW = 12, 6  # images that are drawn with the predictions
MIN_SCORE = 0.5  # of a prediction that is drawn
FLIP = 0.5  # the probability that a training image is mirrored
MIRRORED = 2  # the orientation of such an image in EXIF
PICTURE = {"objects.png": "Detections in images of the test split, with scores; dashed: ground truth"}


class ObjectDetection(Task):
    """Detect objects, measured by COCO's average precision, in images that are resized to `shortest_edge`."""

    kind = "object-detection"

    def __init__(self, recipe: Recipe, data: ObjectData) -> None:
        require("pycocotools")
        self.tables, self.seed, edge = data.tables, recipe.seed, recipe.data.shortest_edge
        edges = {"shortest_edge": edge, "longest_edge": int(edge * MAX_RATIO)}
        processor: Any = DetrImageProcessorPil(size=edges, do_convert_rgb=True)
        if recipe.model.init is not None:
            processor = DetrImageProcessorPil.from_pretrained(pretrained_folder(recipe.model.init), size=edges)
        super().__init__(data, dict(data.tables), processor, labels=data.labels, metrics=("average_precision",))

    def before_training(self, model: Any) -> Any:
        """Raise ValueError for an image with more objects than the model has queries, which leave the others out."""
        queries = model.config.num_queries
        for name, table in self.tables.items():
            counts = [len(boxes_and_classes(value)) for value in table["objects"]]
            if (most := max(counts, default=0)) > queries:
                row = counts.index(most)
                path = (table[row]["image"] or {}).get("path") or f"row {row + 1}"
                raise ValueError(
                    f"{path} of the {name} split has {most} objects, and the model finds num_queries={queries}; "
                    f"set model.num_queries={most} or more, or leave out the image"
                )
        return model

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        images = [check_image(record["image"]) for record in records]
        objects = [check_objects(record["objects"], self.labels) for record in records]
        for index, place in enumerate(places or ()):
            if np.random.default_rng((self.seed, place)).random() < FLIP:
                images[index], objects[index] = mirror(images[index], objects[index])
        batch = unpadded_boxes(self.processor(images, annotations=list(map(coco, objects)), return_tensors="pt"))
        labels: Any = [{name: target[name] for name in ("class_labels", "boxes")} for target in batch["labels"]]
        sizes = torch.tensor([image.size[::-1] for image in images])
        return {**{name: batch[name] for name in ("pixel_values", "pixel_mask")}, "labels": labels, "_size": sizes}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return all predictions for each image and its labels, boxes as left, top, right, bottom in pixels."""
        sizes = batch["_size"]
        predictions = self.processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        references = [
            {"labels": each["class_labels"], "boxes": center_to_corners_format(each["boxes"]) * size.flip(0).repeat(2)}
            for each, size in zip(batch["labels"], sizes, strict=True)
        ]
        return [(as_lists(one), as_lists(other)) for one, other in zip(predictions, references, strict=True)]

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor([sum(len(target["boxes"]) for target in batch["labels"]), len(batch["labels"])])

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        return {"loss": outputs.loss * len(batch["labels"])}

    def products(self, model: Any, folder: Path) -> dict[str, str]:
        table = self.tables["test"]
        records = list(table.select(range(min(DRAWN, len(table)))))
        images = [check_image(record["image"]) for record in records]
        draw_objects(images, predict(self, model, records), self.labels, folder / "objects.png")
        return dict(PICTURE)


def mirror(image: Image.Image, objects: Sequence[Box]) -> tuple[Image.Image, list[Box]]:
    """Mirror an image and its boxes."""
    return ImageOps.mirror(image), [(turned_box(box, image.size, MIRRORED), label) for box, label in objects]


def coco(objects: Sequence[Box]) -> dict[str, Any]:
    """Return objects as COCO annotations, which the image processor takes."""
    rows = [{"bbox": box, "category_id": label, "area": box[2] * box[3], "iscrowd": 0} for box, label in objects]
    return {"image_id": 0, "annotations": rows}


def as_lists(tensors: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Return tensors as lists."""
    return {name: values.tolist() for name, values in tensors.items()}


def draw_objects(images: Sequence[Any], answers: Sequence[Answer], names: Sequence[str], path: Path) -> None:
    """Draw predictions with scores from 0.5 on, a colour for each class, and the labels dashed."""
    figure, axes = grid(len(images), PER_ROW, 2.0)
    for axis, image, (prediction, reference) in zip(axes, images, answers, strict=False):
        # From edge to edge, as boxes are measured, and not from the middle of the first pixel.
        axis.imshow(image, extent=(0, image.width, image.height, 0))
        for box in reference["boxes"]:
            axis.add_patch(frame(box, edgecolor="white", linestyle="--", linewidth=2.5))
        for box, label, score in zip(*(prediction[name] for name in ("boxes", "labels", "scores")), strict=True):
            if score >= MIN_SCORE:
                axis.add_patch(frame(box, edgecolor=f"C{label}", linewidth=1.5))
                axis.text(box[0], box[1] - 1, f"{names[label]} {score:.2f}", color=f"C{label}", fontsize=8)
    figure.savefig(path, dpi=150)


def frame(box: Sequence[float], **style: Any) -> Rectangle:
    """Return the outline of a box."""
    left, top, right, bottom = box
    return Rectangle((left, top), right - left, bottom - top, fill=False, **style)
