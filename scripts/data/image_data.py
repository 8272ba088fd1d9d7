"""Data sets of images: of classes, with captions, or with boxes of objects; from files, folders and the Hub."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from datasets import ClassLabel, Dataset
from transformers import AutoImageProcessor, ViTImageProcessorPil

from qkv.scripts.data.boxes import (
    CROWDS,
    FRAME,
    MENDED,
    boxes_and_classes,
    check_objects,
    check_placed,
    upright_objects,
)  # fmt: skip
from qkv.scripts.data.corpus import STREAMED, DataSet
from qkv.scripts.data.examples import Batch, Examples, InvalidRecord, Record
from qkv.scripts.data.loading import read_split
from qkv.scripts.data.own_tables import (
    checked_tables,
    in_order,
    labels_of,
    rarest,
    read_tables,
    say_alike,
    valid_tables,
)
from qkv.scripts.data.pretrained import pretrained_classes, pretrained_folder
from qkv.scripts.data.read_report import ReadReport
from qkv.scripts.data.splits.division import class_counts, divide_rows
from qkv.scripts.data.splits.duplicates import file_sketches
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.validation import Checks, check_class, check_image, check_label, check_text
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class ImageData(DataSet):
    """Images of classes. Without a `collate` records have an `image`, and training crops it at random.

    `config` are fields of the model's config that follow from the data.
    """

    train: Examples | Stream | None
    splits: Mapping[str, Examples]
    labels: list[str]
    processor: Any
    collate: Callable[[Sequence[Record], Sequence[int] | None], Batch] | None = None
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaptionData(DataSet):
    """Images of `side` pixels, and of each the number of its caption; the first `seen` captions occur in training.

    Records have `levels` (side, side, 3) or an `image`, their number as `place`, and `caption`.
    """

    captions: list[str]
    seen: int
    train: Examples | None
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
    column = recipe.text.label or "label"
    if recipe.data.streaming:
        return stream_images(recipe, column)
    tables, facts = valid_tables(recipe, {"image": check_image, column: check_class})
    labels, names = labels_of(tables, recipe, column)
    division = divide_rows(file_sketches(tables, "image"), recipe, tables, labels, validation_is_enough=True)
    tables = division.of_tables({name: labelled(table, labels[name], names) for name, table in tables.items()})
    processor = processor_for(recipe)
    config = {"image_size": processor.size["height"]} if recipe.data.test_size < 1 else {}
    return ImageData(**facts, train=tables.pop("train", None), splits=tables, labels=names, processor=processor,
                     config=config, report=division.report)  # fmt: skip


def stream_images(recipe: Recipe, column: str) -> ImageData:
    """Stream the training images, whose classes the data name; other splits are tables."""
    data: Any = read_split(recipe, ["image", column], streaming=True)
    named = getattr((data.features or {}).get(column), "names", None)
    checks: dict[Any, Any] = {"image": check_image, column: check_class}
    tables, facts = valid_tables(recipe, checks)
    if named is None or not tables:
        lacks = f"names no classes in column {column!r}" if named is None else "has no validation or test split"
        mend = "which a stream needs; put images in folders of these names, or leave out streaming=true"
        raise ValueError(f"data={recipe.data.source!r} {lacks}, {mend}")
    names = pretrained_classes(recipe.model.init, named)
    numbers = [names.index(name) for name in named]
    tables = {name: labelled(table, [named[own] for own in table[column]], names) for name, table in tables.items()}
    stream = Stream.of(
        recipe,
        facts["invalid_records"],
        checks | {column: partial(check_label, names=tuple(named))},
        prepare=lambda rows: [[{"image": row["image"], "label": numbers[row[column]]}] for row in rows],
    )
    processor = processor_for(recipe)
    return ImageData(**facts, train=stream, splits=tables, labels=names, processor=processor,
                     config={"image_size": processor.size["height"]}, report=dict(STREAMED))  # fmt: skip


def labelled(table: Dataset, labels: Sequence[str], names: list[str]) -> Dataset:
    """Return the images of a table, with the numbers of their classes as `label`."""
    number = {name: place for place, name in enumerate(names)}
    images = table.select_columns(["image"]).add_column("label", [number[label] for label in labels])
    return images.cast_column("label", ClassLabel(names=names))


def processor_for(recipe: Recipe) -> Any:
    """Return the image processor of the pretrained model, or one for the recipe's image size."""
    if recipe.model.init is None:
        return image_processor(recipe.model.config.get("image_size", 224))
    return AutoImageProcessor.from_pretrained(pretrained_folder(recipe.model.init), backend="pil")


def image_processor(side: int) -> ViTImageProcessorPil:
    """Return the image processor of a ViT: square images, scaled to [-1, 1]."""
    size = {"height": side, "width": side}
    return ViTImageProcessorPil(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True)


def read_captions(recipe: Recipe) -> CaptionData:
    """Read images and their captions, in the columns `image` and `text.column`; equal captions are one."""
    column = recipe.text.column
    tables, facts = valid_tables(recipe, {"image": check_image, column: check_text})
    division = divide_rows(file_sketches(tables, "image"), recipe, tables)
    tables = division.of_tables(tables)
    captions = {name: table[column][:] for name, table in tables.items()}
    seen = len(set(captions.get("train", ())))
    numbers = {text: number for number, text in enumerate(dict.fromkeys(chain(*captions.values())))}
    numbered = {
        name: table.select_columns(["image"])
        .add_column("caption", [numbers[text] for text in captions[name]])
        .add_column("place", list(range(len(table))))
        for name, table in tables.items()
    }
    side = recipe.model.config.get("vision_config", {}).get("image_size", 224)
    return CaptionData(
        **facts, captions=list(numbers), seen=seen, train=numbered.pop("train", None), splits=numbered,
        side=side, vocab_size=recipe.text.vocab_size, report=division.report,
    )  # fmt: skip


def read_objects(recipe: Recipe) -> ObjectData:
    """Read images with boxes, in the columns `image` and `objects`; ValueError for a missing column."""
    read = ReadReport()
    tables = read_tables(recipe, ["image", "objects"], read, FRAME)
    labels = object_classes(tables["train"], recipe)
    there = {name for table in tables.values() for name in table.column_names}
    names, frame = tuple(labels), tuple(name for name in FRAME if name in there)
    checks: Checks = {
        "image": check_image,
        "objects": partial(check_objects, names=names),
        ("image", "objects", *frame): partial(check_placed, names=names, frame=frame),
    }
    tables, facts = checked_tables(tables, recipe, checks, read)
    turned = partial(upright_objects, names=names)
    tables = {name: table.map(turned, remove_columns=[each for each in frame if each in table.column_names])
              for name, table in tables.items()}  # fmt: skip
    found = {reason: sum(sum(table[reason]) for table in tables.values()) for reason in MENDED}
    read.left_out += Counter({CROWDS: found.pop(CROWDS)})
    read.mended += Counter(found)
    tables = {name: table.remove_columns(list(MENDED)) for name, table in tables.items()}
    present = {name: [[labels[kind] for _, kind in check_objects(each, labels)] for each in table["objects"]]
               for name, table in tables.items()}  # fmt: skip
    division = divide_rows(file_sketches(tables, "image"), recipe, tables, rarest(present))
    every = {name: [*chain(*rows)] for name, rows in division.of_lists(present).items()}
    without = Counter(name for name, rows in division.of_lists(present).items() for own in rows if not own)
    report = division.report | {"classes": class_counts(every), "without_objects": dict(without)}
    return ObjectData(**facts, tables=division.of_tables(tables), labels=labels, report=report)


def object_classes(table: Dataset, recipe: Recipe) -> list[str]:
    """Return the classes of objects that the data or a pretrained head name, or all that occur."""
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
        raise ValueError(
            f"{recipe.data.source} names no class of an object; give boxes, and their 'category' as a word"
        )
    say_alike(names, recipe.data.source)
    return pretrained_classes(recipe.model.init, in_order(names), "ObjectDetection")
