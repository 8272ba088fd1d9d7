"""Data sets of images: of classes, with captions, or with boxes of objects; from files, folders and the Hub."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from datasets import ClassLabel, Dataset
from PIL import Image
from transformers import AutoImageProcessor, ViTImageProcessorPil

from qkv.scripts.data.corpus import Baselines, DataSet
from qkv.scripts.data.examples import Batch, Examples, Record
from qkv.scripts.data.loading import public_names, read_split, splits
from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.pretrained import pretrained_classes, pretrained_folder
from qkv.scripts.data.splits.division import divide_rows, file_sketches, group_columns, groups_of, sketch_image
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.text_columns import add_splits, check_classes, read_valid
from qkv.scripts.data.validation import Checks, RecordValidation, check_image, check_label, check_text, valid_rows
from qkv.scripts.recipes.schema import Recipe

FORM = "[left, top, width, height] in pixels"
Box = tuple[list[float], int]


@dataclass(frozen=True)
class ImageData(DataSet):
    """Images of classes. Without a `collate` records have an `image`, of which training crops a random part.

    `sample` is an image for the card's program, `config` fields of the model's config that follow from the data.
    """

    train: Examples | Stream
    splits: Mapping[str, Examples]
    labels: list[str]
    processor: Any
    collate: Callable[[Sequence[Record], Sequence[int] | None], Batch] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    sample: Image.Image | None = None
    baselines: Callable[[], Baselines] = dict


@dataclass(frozen=True)
class CaptionData(DataSet):
    """Images of `side` pixels, and of each the number of its caption; the first `seen` captions occur in training.

    Records have `levels` (side, side, 3) or an `image`, their number as `place`, and `caption`.
    """

    captions: list[str]
    seen: int
    train: Examples
    splits: Mapping[str, Examples]
    side: int
    vocab_size: int


@dataclass(frozen=True)
class ObjectData(DataSet):
    """Images with boxes of objects, in tables of the columns `image` and `objects`, and the classes of the objects."""

    tables: dict[str, Dataset]
    labels: list[str]


def read_images(recipe: Recipe) -> ImageData:
    """Read images and classes; ValueError where the data name no classes, or a stream has nothing to evaluate on."""
    where, invalid = recipe.data.source, RecordValidation(recipe.data.bad_records)
    evaluated = [name for name in ("validation", "test") if name in splits(where) and is_labeled(recipe, name)]
    column = recipe.text.label or "label"
    train: Any = read_split(recipe, ["image", column, *group_columns(recipe)], streaming=recipe.data.streaming)
    names, processor = image_classes(train, recipe), processor_for(recipe)
    numbered = numbered_classes(train, column)
    checks: Checks = {"image": check_image, column: partial(check_image_class, names=tuple(names), numbered=numbered)}
    tables: dict[str, Any] = {
        name: with_classes(read_valid(recipe, name, checks, invalid), column, names) for name in evaluated
    }
    report: dict[str, Any] = {}
    if recipe.data.streaming and not evaluated:
        raise ValueError(
            f"data={where!r} has no validation and no test split with labels, and a stream keeps none; put images in "
            "folders of that name, or leave out streaming=true"
        )
    if recipe.data.streaming:
        tables["train"] = Stream.of(recipe, invalid, checks)
        report = {"split": "a stream, whose rows are not compared with each other", "leaked": {}}
    else:
        tables["train"] = with_classes(valid_rows(train, checks, invalid), column, names)
        tables, report = divided_images(tables, recipe, names)
    return ImageData(
        **public_names(where), train=tables.pop("train"), splits=tables, labels=names,
        processor=processor, config={"image_size": processor.size["height"]}, invalid_records=invalid, report=report,
    )  # fmt: skip


def image_classes(train: Any, recipe: Recipe) -> list[str]:
    """Return the names of the classes of images: those that the data name, or all that occur in a table.

    A pretrained model that knows all of them keeps its own names and numbers.
    """
    column, where = recipe.text.label or "label", recipe.data.source
    kind = (train.features or {}).get(column)
    if isinstance(kind, ClassLabel):
        return pretrained_classes(recipe.model.init, kind.names)
    if recipe.data.streaming:
        raise ValueError(
            f"data={where!r} names no classes in its column {column!r}, and a stream is not read to find them; give a "
            "folder for each class, or leave out streaming=true"
        )
    own = sorted({str(value) for value in train[column] if value is not None and str(value).strip()})
    return pretrained_classes(recipe.model.init, own)


def check_image_class(value: Any, names: Sequence[str], numbered: Sequence[str] | None = None) -> int:
    """Return the number of a class, given by its name, or by its number among the names, or among those `numbered`."""
    if numbered is not None:
        return names.index(numbered[check_label(value, numbered)])
    if isinstance(value, str) and not value.strip():
        raise InvalidRecord("missing")
    is_number = isinstance(value, int) and str(value) not in names
    return check_label(value if value is None or is_number else str(value), names)


def numbered_classes(table: Any, column: str) -> list[str] | None:
    """Return the classes that a column numbers; None for one of names."""
    kind = (table.features or {}).get(column)
    return list(kind.names) if isinstance(kind, ClassLabel) else None


def with_classes(table: Dataset, column: str, names: Sequence[str]) -> Dataset:
    """Return a table whose `label` is the number of the class."""
    numbered = numbered_classes(table, column)
    if numbered == list(names):
        return table.rename_column(column, "label") if column != "label" else table
    numbers = [check_image_class(value, names, numbered) for value in table[column]]
    classes = ClassLabel(names=list(names))
    return table.remove_columns(column).add_column("label", numbers).cast_column("label", classes)


def divided_images(
    tables: Mapping[str, Dataset], recipe: Recipe, names: Sequence[str]
) -> tuple[dict[str, Dataset], dict[str, Any]]:
    """Return tables of images in the splits that the recipe asks for, and the facts about these."""
    labels = {name: [names[number] for number in table["label"]] for name, table in tables.items()}
    check_classes(labels["train"], recipe.data.source, "label")
    sketches = file_sketches(tables, "image", sketch_image)
    division = divide_rows(sketches, recipe, labels, groups_of(tables, recipe), validation_is_enough=True)
    return division.of_tables(tables), division.report


def processor_for(recipe: Recipe) -> Any:
    """Return the image processor of the pretrained model, or one for the recipe's image size."""
    if recipe.model.init is not None:
        return AutoImageProcessor.from_pretrained(pretrained_folder(recipe.model.init), backend="pil")
    return image_processor(recipe.model.config.get("image_size", 224))


def image_processor(side: int) -> ViTImageProcessorPil:
    """Return the image processor of a ViT: square images, scaled to [-1, 1]."""
    return ViTImageProcessorPil(
        size={"height": side, "width": side}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True
    )


def is_labeled(recipe: Recipe, split: str) -> bool:
    """Tell whether the labels of a split are known: those of a competition's test are -1, as in ImageNet's."""
    column = recipe.text.label or "label"
    records = read_split(recipe, ["image", column], split, streaming=True)
    return next((record[column] != -1 for record in records), False)


def read_captions(recipe: Recipe) -> CaptionData:
    """Read images and their captions, in the columns `image` and `text.column`.

    Where there is no test split a part of the training is for it; equal captions are one.
    """
    where, column = recipe.data.source, recipe.text.column
    invalid = RecordValidation(recipe.data.bad_records)
    checks = {"image": check_image, column: check_text}
    columns = [*checks, *group_columns(recipe)]
    tables: Any = {name: read_valid(recipe, name, checks, invalid, columns) for name in splits(where)}
    division = divide_rows(file_sketches(tables, "image", sketch_image), recipe, groups=groups_of(tables, recipe))
    tables = division.of_tables(tables)
    numbers: dict[str, int] = {}
    for name in sorted(tables, key=lambda name: name != "train"):
        for caption in tables[name][column]:
            numbers.setdefault(caption, len(numbers))
    seen = len(set(tables["train"][column]))
    numbered = {
        name: table.remove_columns(column)
        .add_column("caption", [numbers[caption] for caption in table[column]])
        .add_column("place", list(range(len(table))))
        for name, table in tables.items()
    }
    train = numbered.pop("train")
    side = recipe.model.config.get("vision_config", {}).get("image_size", 224)
    return CaptionData(
        **public_names(where), captions=list(numbers), seen=seen, train=train, splits=numbered, side=side,
        vocab_size=recipe.text.vocab_size, invalid_records=invalid, report=division.report,
    )  # fmt: skip


def read_objects(recipe: Recipe) -> ObjectData:
    """Read images with boxes, in the columns `image` and `objects`; ValueError for a stream, or a missing column."""
    where = recipe.data.source
    columns = ["image", "objects", *group_columns(recipe)]
    tables: Any = {name: read_split(recipe, columns, name) for name in splits(where)}
    invalid = RecordValidation(recipe.data.bad_records)
    labels = class_names(tables["train"], where, recipe.model.init)
    valid = valid_objects(tables, labels, invalid)
    division = divide_rows(
        file_sketches(valid, "image", sketch_image), recipe, rarest_classes(valid, labels), groups_of(valid, recipe)
    )
    kept = division.of_tables(valid)
    every = {name: (label for own in present_classes(table, labels) for label in own) for name, table in kept.items()}
    report = division.report | {"classes": {name: dict(sorted(Counter(own).items())) for name, own in every.items()}}
    return ObjectData(**public_names(where), tables=kept, labels=labels, invalid_records=invalid, report=report)


def present_classes(table: Dataset, labels: Sequence[str]) -> list[list[str]]:
    """Return the class of each object of each image."""
    return [[labels[label] for _, label in check_objects(value, labels)] for value in table["objects"]]


def rarest_classes(tables: Mapping[str, Dataset], labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the rarest class in each image, by which images are stratified: the others are in more of them."""
    present = {name: present_classes(table, labels) for name, table in tables.items()}
    counts = Counter(label for own in present["train"] for label in own)
    return {
        name: [min(own, key=lambda label: counts[label], default="") for own in rows] for name, rows in present.items()
    }


def object_data(recipe: Recipe, tables: Mapping[str, Dataset], labels: Sequence[str], **names: Any) -> ObjectData:
    """Return the valid records of made images and objects; where there is no test split every tenth is for it."""
    invalid = RecordValidation(recipe.data.bad_records)
    valid = valid_objects(tables, labels, invalid)
    return ObjectData(**names, tables=add_splits(valid, recipe), labels=list(labels), invalid_records=invalid)


def valid_objects(
    tables: Mapping[str, Dataset], labels: Sequence[str], invalid: RecordValidation
) -> dict[str, Dataset]:
    """Return the valid records of tables of images and objects."""
    checks: Checks = {"image": check_image, "objects": partial(check_objects, names=tuple(labels))}
    return {name: valid_rows(table, checks, invalid) for name, table in tables.items()}


def class_names(table: Dataset, where: str, init: str | None = None) -> list[str]:
    """Return the classes of objects: those that the data name, or all that occur; ValueError for mere numbers.

    A pretrained model that knows all that occur keeps its own.
    """
    kind: Any = table.features["objects"]
    kind = getattr(kind, "feature", kind)
    kind = kind.get("category") if isinstance(kind, Mapping) else None
    kind = getattr(kind, "feature", kind)
    if isinstance(kind, ClassLabel):
        return list(kind.names)
    names: set[str] = set()
    for value in table["objects"]:
        with suppress(InvalidRecord):  # which is logged when records are validated
            names |= {name for _, name in boxes_and_classes(value) if isinstance(name, str)}
    if not names:
        raise ValueError(f"{where} does not name the classes of its objects; give each 'category' as a word")
    return pretrained_classes(init, sorted(names), "ObjectDetection")


def boxes_and_classes(value: Any) -> list[tuple[Any, Any]]:
    """Return box and class of each object, from lists of both, a list of objects, or what JSON has of either."""
    if value is None:
        raise InvalidRecord("missing")
    try:
        value = json.loads(value) if isinstance(value, str) else value
        rows = value if isinstance(value, list) else [
            {"bbox": box, "category": name} for box, name in zip(value["bbox"], value["category"], strict=True)
        ]  # fmt: skip
        return [(row["bbox"], row["category"]) for row in rows]
    except (ValueError, TypeError, KeyError):
        raise InvalidRecord(f"expected a 'bbox' {FORM} and a 'category' of each object") from None


def check_objects(value: Any, names: Sequence[str]) -> list[Box]:
    """Return the boxes of an image's objects, which have some size, and the numbers of their classes."""
    objects = []
    for box, name in boxes_and_classes(value):
        sides = isinstance(box, list) and len(box) == 4 and all(isinstance(side, int | float) for side in box)
        if not sides or not all(map(isfinite, box)) or min(box[2:]) <= 0:
            raise InvalidRecord(f"box {box}, expected {FORM}, of some width and height")
        objects.append(([float(side) for side in box], check_label(name, names)))
    return objects
