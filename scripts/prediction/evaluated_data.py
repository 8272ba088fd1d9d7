"""The rows that a model is evaluated on, as the task of its training: the test split of its run, or a table."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, Features, Image
from transformers import AutoImageProcessor

from qkv.scripts.common.environment import data_name, local_files
from qkv.scripts.common.phases import say
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.boxes import FRAME, check_objects, upright
from qkv.scripts.data.columns import NAMES
from qkv.scripts.data.corpus import Corpus, DataSet, SpeechData
from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.image_data import CaptionData, ImageData, ObjectData
from qkv.scripts.data.structures.secondary import SecondaryStructures, check_folded
from qkv.scripts.data.tagged_words import TaggedWords, as_list, check_tagged
from qkv.scripts.data.text_columns import check_class, check_number
from qkv.scripts.data.validation import RecordValidation, check_audio, check_image, check_text
from qkv.scripts.prediction.inputs import Table, column_of, read_input
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.predictor import located
from qkv.scripts.prediction.source import CONTACTS, Source
from qkv.scripts.recipes.loading import build, changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task

LONGEST = 512  # tokens of a row, for models that no run of ours has made
CLASSES = {"label": NAMES["class"]}
# The usual names of columns beside the inputs', by task and role.
USUAL: dict[str, dict[str, list[str]]] = {
    "text-classification": CLASSES, "image-classification": CLASSES, "token-classification": {"label": NAMES["tags"]},
    CONTACTS: {"label": ["structure"]}, "translation": {"target": NAMES["target"]}, "object-detection": {"objects": []},
    **dict.fromkeys(("zero-shot-image-classification", "automatic-speech-recognition"), {"text": NAMES["text"]}),
}  # fmt: skip
CHECKS = {**dict.fromkeys(("text", "pair", "target"), check_text), "image": check_image, "audio": check_audio}
BOTH_AT_ONCE = {"token-classification": check_tagged, CONTACTS: check_folded}  # checks of texts with their labels


def own_test(source: Source, options: Options) -> Task:
    """Load the data of a run as its training did; ValueError where they are not here, or are no longer the same."""
    mend = f"give a table: qkv evaluate {source.name} test.csv"
    if not source.record:
        raise ValueError(f"{source.name} is no run, and has no test split of its own; {mend}")
    recipe = recipe_of(source, options)
    where = recipe.data.source
    is_example, is_here = where in registry.NAMES, bool(local_files(where))
    if not is_example and not is_here and "/" not in where:
        raise ValueError(f"the data of {source.name}, {where!r}, are not here; say where, as in data=path/{where}")
    for place in [f"./{where}"] * (is_example and is_here) + [where]:  # files here may be called as example data are
        with suppress(ValueError) if is_example else nullcontext():
            task = registry.load(changed(recipe, data=place))
            if task.fingerprint() == source.record["data"]["sha256"] and "test" in task.splits:
                return task
    raise ValueError(
        f"{where} does not hold the test split that {source.name} was trained beside, so rows of it may have been "
        f"learned; say where its data are, as in data=path/{Path(where).name}, or {mend}"
    )


def recipe_of(source: Source, options: Options) -> Recipe:
    """Return the recipe of a run, with the tokenizer of its model; of other models one for evaluation alone."""
    fields: dict[str, Any] = {"init": str(source.folder), "out": None, "workers": 0}
    if source.record:
        text = source.record["recipe"]["text"] | {"tokenizer": "characters"}  # `init` brings the trained one
        fields = source.record["recipe"] | fields | {"text": text}
    else:
        most = source.most_tokens if source.medium == "text" else None
        length = most if most and source.task == CONTACTS else min(most or LONGEST, LONGEST)
        fields |= {"name": "", "title": "", "data": source.name, "architecture": source.architecture}
        fields |= {"text": {"length": length, "tokenizer": "characters"}}
    return build(fields | ({"data": options["data"]} if "data" in options else {}))


def table_test(given: str, source: Source, options: Options) -> Task:
    """Read the rows of a table as a test split; ValueError for a missing column, an unknown class, or no good row."""
    table = read_input(given, source, options)
    if table.path is None and source.medium == "text":
        raise ValueError(f"{given!r} is no table; evaluate needs one with references, such as reviews.csv")
    read, invalid = row_reader(table, source, options), RecordValidation()
    both = zip(table.rows, table.reasons, strict=True)
    made = [InvalidRecord(reason) if reason else attempt(read, row) for row, reason in both]
    bad = {number: own for number, own in enumerate(made, 1) if isinstance(own, InvalidRecord)}
    invalid.skipped = [{"file": given, "row": number, "reason": str(own)} for number, own in bad.items()]
    if bad:
        said = f"{len(bad)} of {len(made)} rows of {given} are left out; the first is row {min(bad)}: {bad[min(bad)]}"
        if len(bad) == len(made):
            raise ValueError(said)
        say(said)
    rows = [own for own in made if not isinstance(own, InvalidRecord)]
    fields = {"name": data_name(given), "title": data_name(given), "source": "", "invalid_records": invalid}
    recipe, data = changed(recipe_of(source, options), streaming=False), data_of(rows, source, fields)
    return registry.with_metrics(registry.learning_of(recipe, None).task(recipe, data), recipe)


def row_reader(table: Table, source: Source, options: Options) -> Callable[[Record], Record]:
    """Return the function that reads the values of a row by their roles; ValueError where a column is missing."""
    main = column_of(table, source.medium, source, options)
    if table.path is None:  # pictures in folders that are their classes
        for row in table.rows:
            row["label"] = (table.folder / row[main]).absolute().parent.name
        table.columns.append("label")
    learned = {**source.columns, **options}
    usual = USUAL.get(source.task, {}) | {role: [] for role in ("pair", "target") if role in learned}
    columns = {role: role_column(table, role, names, source, options) for role, names in usual.items()}
    columns[source.medium] = learned["text"] if learned.get("text", "").startswith(f"{main}.") else main
    stored = stored_classes(table, columns.get("label"))
    own = {
        "label": partial(check_label, source=source, stored=stored),
        "objects": partial(check_objects, names=source.labels),
    }
    checks, check_both = CHECKS | own, BOTH_AT_ONCE.get(source.task)

    def read(row: Record) -> Record:
        values = {role: part(row, *name.partition(".")[::2]) for role, name in columns.items()}
        if check_both:
            tags = [stored[tag] for tag in as_list(values["label"])] if stored else values["label"]
            both = check_both(values["text"], tags) or (values["text"].strip(), tags.strip())
            return values | dict(zip(("text", "label"), both, strict=True))
        if source.medium != "text":
            values[source.medium] = located(values[source.medium], table.folder)
        checked = {role: checks[role](value) for role, value in values.items()}
        if "objects" in checked:
            checked["objects"] = upright(values["image"], checked["objects"], {name: row.get(name) for name in FRAME})
        return checked | {role: values[role] for role in ("image", "audio") if role in values}

    return read


def part(row: Record, column: str, language: str) -> Any:
    """Return the value of a column, or of one language of it."""
    value = row.get(column)
    if language:
        with suppress(ValueError, TypeError):  # tables of text hold texts by language as JSON
            value = json.loads(value)
        value = value.get(language) if isinstance(value, dict) else None
    return value


def role_column(table: Table, role: str, usual: Sequence[str], source: Source, options: Options) -> str:
    """Return the column of a role: the one that is asked for, that the run learned from, or that is usually called so.

    ValueError where it is missing, with the columns there are and the line to type.
    """
    called = [name for name in usual if name in table.columns] or [role]
    name = str(options.get(role) or (source.medium == "text" and source.columns.get(role)) or called[0])
    if name.partition(".")[0] not in table.columns:
        raise ValueError(
            f"{table.path or 'the input'} has no column {name!r} with the {role}; the columns are "
            f"{', '.join(table.columns)}; name it, as in {role}={table.columns[-1]}"
        )
    return name


def stored_classes(table: Table, column: str | None) -> list[str] | None:
    """Return the names of classes that a parquet file numbers; None for others."""
    if column is None or table.path is None or table.path.suffix.lower() != ".parquet":
        return None
    kind = Features.from_arrow_schema(pq.read_schema(table.path)).get(column)
    kind = getattr(kind, "feature", kind)
    return list(kind.names) if isinstance(kind, ClassLabel) else None


def check_label(value: Any, source: Source, stored: Sequence[str] | None = None) -> float | int:
    """Return the number of a class, or the number that a regression predicts; ValueError for an unknown class."""
    if source.task == "text-classification" and source.model.config.num_labels == 1:
        with suppress(ValueError, TypeError):  # in tables of text, numbers are texts
            value = float(value)
        return check_number(value)
    value, names = check_class(value), source.labels
    name = stored[value] if stored and isinstance(value, int) else str(value)
    if name not in names:
        raise ValueError(f"{source.name} does not know the class {name!r}; {did_you_mean(name, names, 'classes')}")
    return names.index(name)


def data_of(rows: Sequence[Record], source: Source, fields: dict[str, Any]) -> DataSet:
    """Return rows as the data set that the task of a model learns from, in a test split."""
    columns: dict[str, Any] = {role: [row[role] for row in rows] for role in rows[0]}
    splits = {role: {"test": values} for role, values in columns.items()}
    if source.task == "token-classification":
        tags = [[check_label(tag, source) for tag in own] for own in columns["label"]]
        return TaggedWords(**fields, words=splits["text"], tags={"test": tags}, names=source.labels)
    if source.task == CONTACTS:
        return SecondaryStructures(**fields, sequences=splits["text"], structures=splits["label"])
    if source.medium == "text":
        label = "numbers" if source.model.config.num_labels == 1 else "labels"
        names = {"text": "texts", "pair": "pairs", "target": "targets", "label": label}
        parts = {names[role]: values for role, values in splits.items()}
        return Corpus(**fields, **parts, names=source.labels if "labels" in parts else ())
    if source.medium == "audio":
        return SpeechData(**fields, where=fields["name"], tables={"test": Dataset.from_dict(columns)})
    return images_of(columns, source, fields)


def images_of(columns: dict[str, Any], source: Source, fields: dict[str, Any]) -> DataSet:
    """Return columns of images as the data set that the task of a model learns from, in a test split."""
    captions = list(dict.fromkeys(texts := columns.pop("text", [])))
    if captions:
        columns |= {"caption": list(map(captions.index, texts)), "place": list(range(len(texts)))}
    if objects := columns.pop("objects", None):
        boxes = [{"bbox": [box for box, _ in own], "category": [label for _, label in own]} for own in objects]
        columns["objects"] = boxes
    table = Dataset.from_dict(columns).cast_column("image", Image(decode=False))
    if objects:
        return ObjectData(**fields, tables={"test": table}, labels=source.labels)
    splits: dict[str, Any] = {"train": None, "splits": {"test": table}}
    if captions:
        return CaptionData(**fields, **splits, captions=captions, seen=0, side=0, vocab_size=0)
    processor = AutoImageProcessor.from_pretrained(source.folder, backend="pil")
    return ImageData(**fields, **splits, labels=source.labels, processor=processor)
