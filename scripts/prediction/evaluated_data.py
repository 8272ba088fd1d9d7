"""The rows that a model is evaluated on: the test split of its run, or a table, as the task of its training."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Features

from qkv.scripts.common.environment import local_files
from qkv.scripts.common.phases import say
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.prediction.inputs import Table, column_of, read_input
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import CONTACTS, Source
from qkv.scripts.recipes.loading import build, changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task

ROLES = {"text": "column", "label": "label", "pair": "pair", "target": "target"}


def own_test(source: Source, options: Options) -> Task:
    """Load the data of a run as its training did; ValueError where they are not here, or are no longer the same."""
    mend = f"give a table: qkv evaluate {source.name} test.csv"
    if not source.record:
        raise ValueError(f"{source.name} is no run, and has no test split of its own; {mend}")
    recipe = recorded(source, options)
    where = recipe.data.source
    if where not in registry.NAMES and "/" not in where and not local_files(where):
        raise ValueError(
            f"the data of {source.name} are {where!r}, which is not here; say where, as in data=path/{where}"
        )
    task = loaded(recipe, source)
    if "test" not in task.splits:
        raise ValueError(f"{source.name} has no test split; {mend}")
    return task


def loaded(recipe: Recipe, source: Source) -> Task:
    """Load the data that a run was trained on; of files here and example data of one name those that are the same.

    ValueError where they are others.
    """
    where = recipe.data.source
    is_example, is_here = where in registry.NAMES, bool(local_files(where))
    for place in [f"./{where}"] * (is_example and is_here) + [where]:
        try:
            task = registry.load(changed(recipe, data=place))
        except ValueError:
            if not is_example:
                raise
            continue
        if task.fingerprint() == source.record["data"]["sha256"]:
            return task
    if is_example and not is_here and not recipe.title:
        raise ValueError(
            f"the data of {source.name} are called {where!r}, as example data of qkv that are not the same; say where "
            f"yours are, as in data=path/{where}"
        )
    raise ValueError(
        f"{where} is no longer what {source.name} was trained on, so rows of its test may have been learned; give "
        f"the file as it was, or other rows as an input: qkv evaluate {source.name} test.csv"
    )


def recorded(source: Source, options: Options) -> Recipe:
    """Return the recipe of a run, with the tokenizer and classes of its model."""
    fields = source.record["recipe"] | {"init": str(source.folder), "out": None, "workers": 0}
    fields["text"] = (
        fields["text"] | {"tokenizer": "bpe"} if Path(fields["text"]["tokenizer"]).suffix else fields["text"]
    )
    return build(fields | ({"data": options["data"]} if "data" in options else {}))


def table_test(given: str, source: Source, options: Options) -> Task:
    """Load all rows of a table as a test split; ValueError for columns that are missing, or an unknown class."""
    table = read_input(given, source, options)
    if table.path is None and source.medium == "text":
        raise ValueError(f"{given!r} is no table; evaluate needs one with what is right, such as reviews.csv")
    with copied(table, source, options) as folder:
        recipe = recipe_for(folder, table, source, options)
        try:
            task = registry.load(recipe)
        except ValueError as error:
            raise ValueError(str(error).replace(str(folder), given)) from None
    labels = labels_of(source) if task.labels else []
    unknown = [label for label in task.labels if label not in labels]
    if unknown:
        hint = did_you_mean(unknown[0], labels, "classes")
        raise ValueError(f"{given}: {source.name} does not know the class {unknown[0]!r}; {hint}")
    if skipped := len(task.data.invalid_records.skipped) // 2:
        say(f"{skipped} rows of {given} are left out: {task.data.invalid_records.skipped[0]['reason']}")
    return task


def recipe_for(folder: Path, table: Table, source: Source, options: Options) -> Recipe:
    """Return the recipe of a run, or one inferred from the table, for the rows in a folder and the columns there."""
    words = [f"text.{key}={options[role]}" for role, key in ROLES.items() if role in options]
    check_columns(table, source, options)
    if source.record:
        recipe = recorded(source, options)
        text = {key: options.get(role, getattr(recipe.text, key)) for role, key in ROLES.items()}
    else:
        recipe, _ = infer(str(folder), words)
        text = {key: getattr(recipe.text, key) for key in ROLES.values()}
        if source.medium == "text":
            longest = source.most_tokens or recipe.text.length
            text["length"] = longest if source.task == CONTACTS else min(recipe.text.length, longest)
        recipe = changed(recipe, architecture=source.architecture)
    limits = {
        "holdout": 0.0,
        "leaked_records": 1.0,
        "split": "random",
        "group": None,
        "streaming": False,
        "bad_records": 0.99,
    }
    fields = {"text": vars(recipe.text) | text, "data": str(folder), "init": str(source.folder)}
    return changed(recipe, **limits, **fields)


def check_columns(table: Table, source: Source, options: Options) -> None:
    """Raise ValueError for a column that is missing, with the columns there are and the line to type."""
    wanted = {role: source.columns.get(role) for role in ROLES} | {r: options[r] for r in ROLES if r in options}
    if source.medium == "image":  # the recipes of images have a column of texts only where they read some
        wanted = {role: options.get(role, "") for role in ("text", "label")}
    for role, name in wanted.items():
        column = (name or "").partition(".")[0]
        if column and column not in table.columns:
            raise ValueError(
                f"{table.path or 'the input'} has no column {column!r} with the {role}; the columns are "
                f"{', '.join(table.columns)}; name it, as in {role}={table.columns[-1]}"
            )


@contextmanager
def copied(table: Table, source: Source, options: Options) -> Iterator[Path]:
    """Yield a folder in which the rows are training and test split, for tasks read both; nothing is trained on them."""
    with TemporaryDirectory() as place:
        for split, more in (("train", every_class(table, source, options)), ("test", [])):
            if table.path is not None and source.medium == "text" and not more:
                shutil.copy(table.path, Path(place) / f"{split}{table.path.suffix.lower()}")
                continue
            rows = [*table.rows, *more]
            if source.medium != "text":
                column = column_of(table, source.medium, source, options)
                rows = [absolute(row, column, table) for row in rows]
            write(rows, table, Path(place), split)
        yield Path(place)


def write(rows: Sequence[dict[str, Any]], table: Table, place: Path, split: str) -> None:
    """Write rows; those of a parquet file as one with its types, which know stored files and numbers of classes."""
    if is_parquet(table):
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(table.path)), place / f"{split}.parquet")
        return
    (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def is_parquet(table: Table) -> bool:
    """Return whether rows are those of a parquet file."""
    return table.path is not None and table.path.suffix.lower() == ".parquet"


def labels_of(source: Source) -> list[str]:
    """Return the labels of a model in the order of their numbers, in which a stock config need not have them."""
    return [label for _, label in sorted(source.model.config.id2label.items())]


def every_class(table: Table, source: Source, options: Options) -> list[dict[str, Any]]:
    """Return a row of each class of a classifier: a table that is only evaluated may hold a single one."""
    label = options.get("label") or source.columns.get("label") or "label"
    classifies = source.task in ("text-classification", "image-classification")
    if not classifies or label not in table.columns or source.model.config.num_labels < 2:
        return []
    classes: Sequence[str | int] = labels_of(source)
    kind = Features.from_arrow_schema(pq.read_schema(table.path)).get(label) if is_parquet(table) else None
    if isinstance(kind, ClassLabel):
        classes = [kind.names.index(name) for name in classes if name in kind.names]
    first = next((row for row in table.rows if row.get(label) not in (None, "")), {})
    return [{**first, label: name} for name in classes] if first else []


def absolute(row: dict[str, Any], column: str, table: Table) -> dict[str, Any]:
    """Return a row with the whole path of its file; without a table the folder that it lies in is its class."""
    value = row.get(column)
    path = (table.folder / value).absolute() if isinstance(value, str) and value else value
    own = {**row, column: str(path) if isinstance(path, Path) else path}
    return own if table.path is not None else {**own, "label": path.parent.name if isinstance(path, Path) else None}
