"""The rows that a model is evaluated on, as the task of its training: the test split of its run, or a table."""

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.phases import say
from qkv.scripts.data.columns import LOCATED, NAMES
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.local_files import found_files
from qkv.scripts.data.read_report import counted
from qkv.scripts.data.splits.seen import HASHES
from qkv.scripts.data.text_columns import MULTI_LABEL
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import ANSWERS, CONTACTS, FOLDS, LONGEST, ROLES, Source
from qkv.scripts.recipes.loading import build, changed
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task, fingerprint_of

PART = 20_000  # rows of a table that are in memory at a time
ANY_BUT_ALL = 1 - 1e-9  # the share of bad records that leaves a row to evaluate
TEXTS, CAPTIONS = {"column": [*NAMES["text"], *NAMES["source"]]}, {"column": NAMES["text"]}
# The usual names of columns, by task and by the field of a recipe that names them.
USUAL: dict[str, dict[str, list[str]]] = {
    "text-generation": TEXTS,
    "fill-mask": TEXTS,
    "text-classification": TEXTS | {"label": [*NAMES["class"], *NAMES["number"]]},
    "token-classification": {"column": NAMES["words"], "label": NAMES["tags"]},
    "translation": {"column": [*NAMES["source"], *NAMES["text"]], "target": NAMES["target"]},
    ANSWERS: {"column": NAMES["context"], "pair": NAMES["question"], "label": NAMES["answers"]},
    CONTACTS: {"column": NAMES["chain"], "label": ["structure"]},
    FOLDS: {"column": NAMES["chain"], "label": NAMES["coordinates"]},
    "image-classification": {"label": NAMES["class"]},
    "zero-shot-image-classification": CAPTIONS,
    "automatic-speech-recognition": CAPTIONS,
}


def run_test(source: Source, options: Options) -> Task:
    """Load the data of a run as its training did; ValueError where they are not here, or are no longer the same."""
    mend = f"give a table: qkv evaluate {source.name} test.csv"
    if not source.record:
        raise ValueError(f"{source.name} is no run, and has no test split; {mend}")
    recipe = recipe_of(source, options)
    where = recipe.data.source
    is_example, is_here = where in registry.NAMES, is_local(where)
    if not is_example and not is_here and "/" not in where:
        raise ValueError(f"the data of {source.name}, {where!r}, are not here; say where, as in data=path/{where}")
    for place in [f"./{where}"] * (is_example and is_here) + [where]:  # files here may be called as example data are
        with suppress(ValueError) if is_example else nullcontext():
            task = registry.load(changed(recipe, data=place))
            if fingerprint_of(task) == source.record["data"]["sha256"] and "test" in task.splits:
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
        length = most if most and source.task in (CONTACTS, ANSWERS, FOLDS) else min(most or LONGEST, LONGEST)
        fields |= {"name": "", "title": "", "data": source.name, "architecture": source.architecture}
        fields |= {"text": {"length": length, "tokenizer": "characters"}}
    if source.task == "text-classification":
        one = "regression" if source.model.config.num_labels == 1 else "single_label_classification"
        kind = MULTI_LABEL if source.model.config.problem_type == MULTI_LABEL else one
        fields["model"] = fields.get("model", {}) | {"problem_type": kind}
    return build(fields | ({"data": options["data"]} if "data" in options else {}))


def table_tests(given: str, source: Source, options: Options) -> Iterator[Task]:
    """Read a table, a folder or a data set of the Hub as a test split, a large table in parts.

    ValueError for classes of another model.
    """
    if "/" not in given and not is_local(given):
        raise ValueError(f"{given!r} is no table; evaluate needs one with references, such as reviews.csv")
    recipe, encoding = recipe_of(source, options), options.get("encoding", "utf-8")
    where = given if "/" in given else f"./{given}"  # files here may be called as example data are
    table = read(where, split="test" if "test" in splits(where) else "train", encoding=encoding)
    columns: dict[str, Any] = columns_of(table.column_names, recipe, options, source)
    text = replace(recipe.text, evaluated=0, **columns)
    data = replace(recipe.data, test_size=1.0, bad_records=ANY_BUT_ALL, encoding=encoding, group=None,
                   streaming=False)  # fmt: skip
    asked = replace(recipe, text=text, data=data)
    left = found_files(Path(where))[1] if is_large(table) and is_local(where) else None
    for part in parts_of(where, table) if is_large(table) else ():
        load_part(part, given, asked, source)  # an error of the last one comes before the first is evaluated
    for part in parts_of(where, table):
        task = load_part(part, given, asked, source)
        if left := task.data.read.left_out if left is None else left:
            say(f"left out of {given}: {counted(left)}")
        left = Counter()
        yield task


def load_part(part: str, given: str, recipe: Recipe, source: Source) -> Task:
    """Read a table, or a part of it, as a test split; ValueError for classes of another model."""
    task = registry.load(replace(recipe, data=replace(recipe.data, source=part)))
    if task.labels and task.labels != source.labels:
        raise ValueError(
            f"{given} has the classes {', '.join(task.labels)}, and {source.name} knows {', '.join(source.labels)}; "
            "leave out the rows of others"
        )
    return task


def is_large(table: Any) -> bool:
    """Tell whether a table does not fit into memory; images and sound stay in their files."""
    return len(table) > PART and not LOCATED.keys() & set(table.column_names)


def parts_of(where: str, table: Any) -> Iterator[str]:
    """Yield a table, or where it is large, folders with so many of its rows as fit into memory."""
    if not is_large(table):
        yield where
        return
    with TemporaryDirectory() as folder:
        for start in range(0, len(table), PART):
            stop = min(start + PART, len(table))
            part = Path(folder) / f"rows {start + 1} to {stop} of {Path(where).name}"
            table.select(range(start, stop)).save_to_disk(part)
            yield str(part)
            rmtree(part)


def count_together(whole: Task, part: Task) -> None:
    """Add the facts of a further part of a table to those of the first."""
    before, own = whole.data.report[HASHES]["test"], part.data.report[HASHES]["test"]
    whole.data.report[HASHES] = {"test": np.concatenate([before, own])}
    whole.data.invalid_records.lines |= part.data.invalid_records.lines
    if whole.truncated:
        texts, share = whole.truncated["texts"], whole.truncated["share"]
        texts["test"] += part.truncated["texts"]["test"]
        sum_of_shares = len(before) * share["test"] + len(own) * part.truncated["share"]["test"]
        share["test"] = sum_of_shares / (len(before) + len(own))


def columns_of(there: list[str], recipe: Recipe, options: Options, source: Source) -> dict[str, str | None]:
    """Choose the columns of a table: by the options, as the run learned, or by their usual names.

    Texts alone may be called otherwise than in the training.
    """
    known = USUAL.get(source.task, {}) | ({"messages": NAMES["dialogue"]} if source.chats else {})
    chosen: dict[str, str | None] = {}
    for role, field in ROLES.items():
        learned = getattr(recipe.text, field)
        is_there = bool(learned) and learned.partition(".")[0] in there
        usual = [name for name in known.get(field, ()) if name in there]
        asked = options.get("text" if role == "messages" and source.chats else role)
        named = [asked, learned if is_there or field not in ("column", "messages") else None, *usual, learned]
        chosen[field] = next(filter(None, named), None)
    # Corrupted texts are their own targets.
    return chosen | ({"target": None} if recipe.text.corruption else {})
