"""Data sets of images: of classes, with captions, or with boxes of objects; from files, folders and the Hub."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from datasets import ClassLabel, Dataset
from PIL import Image
from transformers import AutoImageProcessor, ViTImageProcessorPil

from qkv.scripts.data.boxes import FRAME, boxes_and_classes, check_objects, check_placed, upright_objects
from qkv.scripts.data.corpus import STREAMED, Baselines, DataSet
from qkv.scripts.data.examples import ORIGIN, Batch, Examples, InvalidRecord, Record
from qkv.scripts.data.loading import public_names, read_split, select, splits
from qkv.scripts.data.pretrained import pretrained_classes, pretrained_folder
from qkv.scripts.data.splits.division import (
    class_counts,
    divide_rows,
    file_sketches,
    group_columns,
    groups_of,
    sketch_image,
)
from qkv.scripts.data.stream import Stream
from qkv.scripts.data.text_columns import add_splits, check_classes, in_order, read_tables
from qkv.scripts.data.validation import Checks, RecordValidation, check_image, check_label, check_text, valid_rows
from qkv.scripts.recipes.schema import Recipe


@dataclass(frozen=True)
class ImageData(DataSet):
    """Images of classes. Without a `collate` records have an `image`, of which training crops a random part.

    `sample` is an image for the card's program, `config` fields of the model's config that follow from the data.
    """

    train: Examples | Stream | None
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
    where, column, streaming = recipe.data.source, recipe.text.label or "label", recipe.data.streaming
    invalid, columns = RecordValidation(recipe.data.bad_records), ["image", column, *group_columns(recipe)]
    tables: dict[str, Any] = {"train": read_split(recipe, columns, streaming=streaming)}
    numbered = getattr((tables["train"].features or {}).get(column), "names", None)
    for name in splits(where):
        table: Any = read_split(recipe, columns, name) if name in ("validation", "test") else None
        # Labels of a competition's test are -1, as in ImageNet's.
        if table is not None and (numbered is None or any(number != -1 for number in table[column])):
            tables[name] = table
    if streaming and (numbered is None or len(tables) < 2):
        lacks = "has no validation and no test split with labels, and a stream keeps none; put images in"
        if numbered is None:
            lacks = f"names no classes in column {column!r}, and a stream is not read to find them; put images in"
        raise ValueError(f"data={where!r} {lacks} folders of these names, or leave out streaming=true")
    own = numbered or in_order(str(each) for each in tables["train"][column] if each is not None and str(each).strip())
    names = pretrained_classes(recipe.model.init, own)
    checks: Checks = {"image": check_image, column: partial(check_image_class, names=tuple(names), numbered=numbered)}
    tables = {name: classified(table, column, checks, invalid, names) for name, table in tables.items()
              if name != "train" or not streaming}  # fmt: skip
    tables, report = (tables, dict(STREAMED)) if streaming else divided_images(tables, recipe, names)
    train = Stream.of(recipe, invalid, checks) if streaming else tables.pop("train", None)
    processor = processor_for(recipe)
    config = {"image_size": processor.size["height"]} if recipe.data.test_size < 1 else {}
    return ImageData(
        **public_names(where), train=train, splits=tables, labels=names, processor=processor, config=config,
        invalid_records=invalid, report=report,
    )  # fmt: skip


def divided_images(tables: Mapping[str, Dataset], recipe: Recipe, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Return tables of images in the splits that the recipe asks for, and the facts about these."""
    labels = {name: [names[number] for number in table["label"]] for name, table in tables.items()}
    if recipe.data.test_size < 1:
        check_classes(labels["train"], recipe.data.source, recipe.text.label or "label")
    sketches, groups = file_sketches(tables, "image", sketch_image), groups_of(tables, recipe)
    division = divide_rows(sketches, recipe, labels, groups, validation_is_enough=True)
    return division.of_tables(tables), division.report


def classified(table: Dataset, column: str, checks: Checks, invalid: RecordValidation, names: list[str]) -> Dataset:
    """Return the valid rows of a table of images, whose `label` is the number of the class."""
    valid = valid_rows(table, checks, invalid)
    numbers = list(map(checks[column], valid[column]))
    return valid.remove_columns(column).add_column("label", numbers).cast_column("label", ClassLabel(names=names))


def check_image_class(value: Any, names: Sequence[str], numbered: Sequence[str] | None = None) -> int:
    """Return the number of a class, given by its name, or by its number among those `numbered`."""
    if numbered is not None:
        return names.index(numbered[check_label(value, numbered)])
    if value is None or not str(value).strip():
        raise InvalidRecord("missing")
    return check_label(str(value), names)


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
    """Read images and their captions, in the columns `image` and `text.column`.

    Where there is no test split a part of the training is for it; equal captions are one.
    """
    where, column, invalid = recipe.data.source, recipe.text.column, RecordValidation(recipe.data.bad_records)
    tables = read_tables(recipe, {"image": check_image, column: check_text}, invalid)
    division = divide_rows(file_sketches(tables, "image", sketch_image), recipe, groups=groups_of(tables, recipe))
    tables = division.of_tables(tables)
    captions = {name: table[column][:] for name, table in tables.items()}
    numbers = {text: number for number, text in enumerate(dict.fromkeys(captions.get("train", ())))}
    seen = len(numbers)
    for text in (text for own in captions.values() for text in own):
        numbers.setdefault(text, len(numbers))
    numbered = {
        name: table.remove_columns(column)
        .add_column("caption", [numbers[text] for text in captions[name]])
        .add_column("place", list(range(len(table))))
        for name, table in tables.items()
    }
    side = recipe.model.config.get("vision_config", {}).get("image_size", 224)
    return CaptionData(
        **public_names(where), captions=list(numbers), seen=seen, train=numbered.pop("train", None), splits=numbered,
        side=side, vocab_size=recipe.text.vocab_size, invalid_records=invalid, report=division.report,
    )  # fmt: skip


def read_objects(recipe: Recipe) -> ObjectData:
    """Read images with boxes, in the columns `image` and `objects`; ValueError for a stream, or a missing column."""
    where, invalid = recipe.data.source, RecordValidation(recipe.data.bad_records)
    columns = ["image", "objects", *group_columns(recipe)]
    tables: dict[str, Any] = {name: read_split(recipe, None, name) for name in splits(where)}
    for name, table in tables.items():
        kept = {*select(table.column_names, columns, where), *FRAME, *ORIGIN}
        tables[name] = table.select_columns([each for each in table.column_names if each in kept])
    labels = class_names(tables["train"], where, recipe.model.init)
    valid = valid_objects(tables, labels, invalid)
    present = {name: [[labels[kind] for _, kind in check_objects(each, labels)] for each in table["objects"]]
               for name, table in valid.items()}  # fmt: skip
    counts = Counter(label for own in present["train"] for label in own)
    # Images are stratified by their rarest class: the others are in more of them.
    rarest = {name: [min(own, key=counts.__getitem__, default="") for own in rows] for name, rows in present.items()}
    division = divide_rows(file_sketches(valid, "image", sketch_image), recipe, rarest, groups_of(valid, recipe))
    each = {name: [label for own in rows for label in own] for name, rows in division.of_lists(present).items()}
    report = division.report | {"classes": class_counts(each)}
    return ObjectData(
        **public_names(where), tables=division.of_tables(valid), labels=labels, invalid_records=invalid, report=report
    )


def object_data(recipe: Recipe, tables: Mapping[str, Dataset], labels: Sequence[str], **names: Any) -> ObjectData:
    """Return the valid records of made images and objects; where there is no test split every tenth is for it."""
    invalid = RecordValidation(recipe.data.bad_records)
    valid = valid_objects(tables, labels, invalid)
    return ObjectData(**names, tables=add_splits(valid, recipe), labels=list(labels), invalid_records=invalid)


def valid_objects(
    tables: Mapping[str, Dataset], labels: Sequence[str], invalid: RecordValidation
) -> dict[str, Dataset]:
    """Return the valid records of tables of images and objects, whose boxes are in the upright images."""
    names, frame = tuple(labels), tuple(name for name in FRAME if name in tables["train"].column_names)
    checks: Checks = {
        "image": check_image,
        "objects": partial(check_objects, names=names),
        ("image", "objects", *frame): partial(check_placed, names=names, frame=frame),
    }
    valid = {name: valid_rows(table, checks, invalid) for name, table in tables.items()}
    turned = partial(upright_objects, names=names)
    return {name: table.map(turned, remove_columns=list(frame)) if frame else table for name, table in valid.items()}


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
