"""What is where in the picture? Boxes and classes of objects, which a detector has to find as a set."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from datasets import ClassLabel, Dataset
from PIL import Image, ImageOps
from torch import Tensor
from transformers import DetrImageProcessorPil

from qkv.modeling.matching import corners
from qkv.scripts.common.extras import require
from qkv.scripts.data.loading import called, read, splits
from qkv.scripts.data.objects import own_boxes
from qkv.scripts.data.readers import Fault
from qkv.scripts.data.text_columns import address, divided
from qkv.scripts.data.validation import Checks, Complaints, number_of, picture, sift
from qkv.scripts.example_data.scenes import scenes
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Batch, Example, Record, Task
from qkv.scripts.training.evaluation import model_inputs
from qkv.scripts.training.plots import draw_objects

COLUMNS = ("image", "objects")
FORM = "[left, top, width, height] in pixels"
MADE = "shapes-detect"
HERE = "https://pillow.readthedocs.io/en/stable/reference/ImageDraw.html"
# The longer side of an image at most, by its shorter one: 1333 for 800, as DETR has it.
LONGEST = 1333 / 800
SHOWN = 12  # pictures that are drawn with what was found on them
MIRRORED = 0.5  # how often a picture is seen as a mirror shows it
PICTURE = {"objects.png": "Detections in images of the test split, with scores; dashed: ground truth"}
Box = tuple[list[float], int]


def detection(recipe: Recipe) -> Task:
    """Pictures with boxes: of shapes that are drawn here, or of `data=` in columns `image` and `objects`.

    `objects` hold of each object a `bbox` (left, top, width, height in pixels) and its `category`, as data sets of the
    Hub do. Images are shrunk or enlarged to `shortest_edge`, and half of those that are trained on mirrored. Where
    there is no test split every tenth record is for it; measured is COCO's average precision. ValueError where a column
    is missing, or too many records are bad.
    """
    require("pycocotools")
    complaints, made = Complaints(recipe.bad_records), recipe.data == MADE
    found = scenes(recipe) if made else given(recipe)
    labels = names(found["train"], recipe.data)
    checks: Checks = {"image": picture, "objects": partial(boxed, names=labels)}
    tables: Any = divided({name: sift(table, checks, complaints) for name, table in found.items()}, recipe)
    edges = {"shortest_edge": recipe.shortest_edge, "longest_edge": int(recipe.shortest_edge * LONGEST)}
    look = Look(DetrImageProcessorPil(size=edges, do_convert_rgb=True), tuple(labels), recipe.seed)
    return Task(
        name=called(recipe.data),
        title="shapes in boxes" if made else called(recipe.data),
        kind="object-detection",
        source=HERE if made else address(recipe),
        train=tables.pop("train"),
        splits=tables,
        labels=labels,
        processor=look.processor,
        count=counted,
        score=lambda outputs, batch: {"loss": outputs.loss * len(batch["labels"])},
        answer=look.answer,
        measure=measured,
        collate=look,
        example=partial(look.example, tables["test"][0]),
        products=partial(look.drawn, tables["test"].select(range(min(SHOWN, len(tables["test"]))))),
        complaints=complaints,
    )


def given(recipe: Recipe) -> dict[str, Any]:
    """The splits of pictures of files, folders and the Hub; ValueError for a stream, and where a column is missing."""
    if recipe.streaming:
        raise ValueError("boxes are looked through before the training, which is no stream; leave out streaming=true")
    return {name: read(recipe.data, split=name, columns=list(COLUMNS)) for name in splits(recipe.data)}


def names(table: Dataset, where: str) -> list[str]:
    """The classes of the objects: those that the data name, or all that occur, by name; ValueError for mere numbers."""
    kind: Any = table.features["objects"]
    kind = getattr(kind, "feature", kind)
    kind = kind.get("category") if isinstance(kind, Mapping) else None
    kind = getattr(kind, "feature", kind)
    if isinstance(kind, ClassLabel):
        return list(kind.names)
    found: set[str] = set()
    for value in table["objects"]:
        with suppress(Fault):  # of which there will be word
            found |= {name for _, name in listed(value) if isinstance(name, str)}
    if not found:
        raise ValueError(f"{where} does not name the classes of its objects; give each 'category' as a word")
    return sorted(found)


def listed(value: Any) -> list[tuple[Any, Any]]:
    """Box and class of each object, from lists of both, a list of objects, or what JSON has of either."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
        rows = value if isinstance(value, list) else [
            {"bbox": box, "category": name} for box, name in zip(value["bbox"], value["category"], strict=True)
        ]  # fmt: skip
        return [(row["bbox"], row["category"]) for row in rows]
    except (ValueError, TypeError, KeyError):
        raise Fault(f"expected a 'bbox' {FORM} and a 'category' of each object") from None


def boxed(value: Any, names: Sequence[str]) -> list[Box]:
    """The objects of a picture: boxes of some size, and the numbers of their classes."""
    found = []
    for box, name in listed(value):
        sides = isinstance(box, list) and len(box) == 4 and all(isinstance(side, int | float) for side in box)
        if not sides or not all(map(isfinite, box)) or min(box[2:]) <= 0:
            raise Fault(f"box {box}, expected {FORM}, of some width and height")
        found.append(([float(side) for side in box], number_of(name, names)))
    return found


def mirrored(image: Image.Image, objects: Sequence[Box]) -> tuple[Image.Image, list[Box]]:
    """The picture as a mirror shows it."""
    return ImageOps.mirror(image), [
        ([image.width - left - width, top, width, height], label) for (left, top, width, height), label in objects
    ]


@dataclass(frozen=True)
class Look:
    """Makes batches of pictures and their objects, in training some as their mirror image, and reads answers."""

    processor: Any
    names: tuple[str, ...]
    seed: int

    def __call__(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        """Pixels, which of them are no padding, and of each picture its objects."""
        images = [picture(record["image"]) for record in records]
        objects = [boxed(record["objects"], self.names) for record in records]
        for index, place in enumerate(places or ()):
            if np.random.default_rng((self.seed, place)).random() < MIRRORED:
                images[index], objects[index] = mirrored(images[index], objects[index])
        batch = own_boxes(self.processor(images, annotations=list(map(annotated, objects)), return_tensors="pt"))
        labels: Any = [{name: found[name] for name in ("class_labels", "boxes")} for found in batch["labels"]]
        sizes = torch.tensor([image.size[::-1] for image in images])
        return {**{name: batch[name] for name in ("pixel_values", "pixel_mask")}, "labels": labels, "_size": sizes}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """What is found in each picture, however unsure, and what is there: left, top, right, bottom in pixels."""
        sizes = batch["_size"]
        found = self.processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        wanted = [
            {"labels": there["class_labels"], "boxes": corners(there["boxes"]) * size.flip(0).repeat(2)}
            for there, size in zip(batch["labels"], sizes, strict=True)
        ]
        return [(plain(one), plain(other)) for one, other in zip(found, wanted, strict=True)]

    def asked(self, model: Any, records: Sequence[Record]) -> list[Answer]:
        """The answer to some records."""
        batch = send_to_device(self(records, None), model.device)
        with torch.no_grad():
            return self.answer(model, model(**{**model_inputs(batch), "labels": None}), batch)

    def example(self, record: Record, model: Any) -> Example:
        """A picture, and what the first slot finds in it."""
        ((found, _),) = self.asked(model, [record])
        sides = ("xmin", "ymin", "xmax", "ymax")
        box = dict(zip(sides, map(int, found["boxes"][0]), strict=True))
        expected = {"label": self.names[found["labels"][0]], "box": box}
        return Example(picture(record["image"]), expected, {"threshold": 0.0})

    def drawn(self, records: Dataset, model: Any, folder: Path) -> dict[str, str]:
        """Draw what is found in some pictures."""
        answers = self.asked(model, list(records))
        draw_objects([picture(record["image"]) for record in records], answers, self.names, folder / "objects.png")
        return dict(PICTURE)


def annotated(objects: Sequence[Box]) -> dict[str, Any]:
    """Objects as the image processor takes them, in the words of COCO."""
    found = [{"bbox": box, "category_id": label, "area": box[2] * box[3], "iscrowd": 0} for box, label in objects]
    return {"image_id": 0, "annotations": found}


def plain(found: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """The same as lists."""
    return {name: values.tolist() for name, values in found.items()}


def counted(batch: Batch) -> Tensor:
    """The objects and the images of a batch."""
    return torch.tensor([sum(len(found["boxes"]) for found in batch["labels"]), len(batch["labels"])])


def measured(sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
    """The loss, a mean over images, and average precision."""
    return {"loss": sums["loss"] / sums["targets"], **measure(["average_precision"], *zip(*answers, strict=True))}
