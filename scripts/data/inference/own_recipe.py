"""Infer the recipe of own data: their task, a model and its settings."""

import math
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.files import table
from qkv.scripts.common.heads import IMPLIED, WORDS
from qkv.scripts.common.phases import is_first_process, say
from qkv.scripts.common.tables import print_table
from qkv.scripts.data.boxes import boxes_and_classes
from qkv.scripts.data.columns import KNOWN, Column
from qkv.scripts.data.examples import ORIGIN, ROWS, InvalidRecord, attempt
from qkv.scripts.data.formats.encodings import UTF_8
from qkv.scripts.data.inference.task_of_columns import FIELDS, Roles, asked_roles, guess_task
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.pretrained import fitted
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.fields.keys import flat, merged
from qkv.scripts.recipes.loading import assign, build, is_data, load, names, pairs, task_word
from qkv.scripts.recipes.schema import Fields, Recipe

SETTINGS: dict[str, Fields] = table(__file__)
SAMPLE = 3200  # rows of a stream to guess from, and values of a column to measure
STEPS = (200, 3000)
LONGEST_CHAIN = 256  # tokens, for a model of pairs takes memory by their square
PATCHES = 8  # in a row of an image
QUERIES = 20  # of a detector, unless an image has more objects
PLAIN = ("string", "large_string", "bool", "int", "uint", "float", "decimal", "date", "time")  # beginnings of types


def recipe_of(name: str, words: Sequence[str] = ()) -> Recipe:
    """Load a recipe by its name, or infer one from data, and print the inferred values."""
    if not is_data(name):
        if is_local(name) and name in names():
            say(f"{name} is the recipe of this name; write ./{name} for the data here")
        return load(name, words)
    recipe, inferred = infer(name, words)
    if is_first_process():
        print_table("inferred; key=value overrides it", inferred)
    return recipe


def infer(where: str, words: Sequence[str] = ()) -> tuple[Recipe, dict[str, str]]:
    """Return a recipe for your own data, and a table of the inferred values; `key=value` words override them.

    ValueError names the columns that there are, and a line to type.
    """
    given: Fields = {}
    task = task_word(words)
    if task not in (None, *SETTINGS):
        task = next(word for word, name in WORDS.items() if name == task)
    for key, value in pairs(resolve([word for word in words if not word.startswith("task=")]), "text.label=kind"):
        assign(given, key, value)
    if task is None and str(given.get("architecture", "")).endswith("ForTokenClassification"):
        task = "token-classification"
    text = given.get("text") or {}
    task = task or next((name for key, name in IMPLIED.items() if text.get(key)), None)
    streaming, has_validation = not is_local(where), "validation" in splits(where)
    columns, count = described(read(where, streaming=streaming, encoding=str(given.get("encoding", UTF_8))), where)
    asked = asked_roles(columns, text, where)
    task, roles = guess_task([each for each in columns if each is not asked.get("task")], asked, where, task)
    name = re.sub(r"[^\w.-]+", "-", Path(where).resolve().stem if is_local(where) else where)
    own = {"name": name, "title": "", "data": where, "holdout": 0.0 if has_validation else 0.1}
    values = fitted(merged(merged(own, fields_of(roles)), SETTINGS[task]), given)
    usual = values.pop("epochs")
    checked = flat(build(merged(values, given)))
    typed = {key: checked[key] for key in given if key in checked}
    values |= length_of_training(typed, checked["batch_size"], count, usual)
    if checked["average"] > 1 or (not checked["holdout"] and not has_validation):
        del values["watch"]
    recipe = build(merged(values, given))
    return recipe, shown(task, roles, recipe, f"{'at least ' * (streaming and count == SAMPLE)}{count:,} rows")


def described(data: Any, where: str) -> tuple[list[Column], int]:
    """Describe the columns of all rows, or of the first ones of a stream; ValueError where there are none."""
    rows = data if isinstance(data, Dataset) else Dataset.from_list(list(islice(data, SAMPLE)), data.features)
    if "_invalid" in rows.column_names:
        valid = np.asarray(rows.select_columns(["_invalid"]).with_format("arrow")[:]["_invalid"].is_null())
        rows = rows if valid.all() else rows.select(np.flatnonzero(valid))
    if not len(rows):
        raise ValueError(f"{where} holds no row that can be read; give a file with rows")
    step, few = math.ceil(len(rows) / SAMPLE), rows.select(range(min(len(rows), SAMPLE // 10)))
    features = {name: feature for name, feature in rows.features.items() if name not in ORIGIN}
    columns = {name: Column(name, feature, step if is_plain(feature) else 1) for name, feature in features.items()}
    for part, plain in ((rows, True), (few, False)):
        own = {name: column for name, column in columns.items() if is_plain(column.feature) is plain}
        for batch in part.select_columns([*own]).iter(ROWS) if own else ():
            for name, column in own.items():
                names = getattr(column.feature, "names", None)
                column.add([names[n] for n in batch[name] if n is not None and n >= 0] if names else batch[name])
    return [*columns.values()], len(rows)


def is_plain(feature: Any) -> bool:
    """Tell whether the values of a type are small: texts, numbers, or lists of them."""
    return str(getattr(getattr(feature, "feature", feature), "dtype", "")).startswith(PLAIN)


def length_of_training(given: Fields, batch_size: int, rows: int, epochs: int) -> Fields:
    """Return the length of a training and the fields that follow: some epochs, in bounds, unless it is typed."""
    count = min(max(math.ceil(rows * epochs / batch_size), STEPS[0]), STEPS[1])
    if "epochs" in given:
        count = math.ceil(rows * given["epochs"] / batch_size)
    count = given.get("max_steps", count)
    return {"max_steps": count, "warmup_steps": count // 10, "eval_every": math.ceil(count / 5), "log_every": 10}


def fields_of(roles: Roles) -> Fields:
    """Return the fields that follow from columns: their names, a length that holds about 95 % of texts, and sizes.

    Images are shown at the median of their shorter sides, in steps of eight pixels, at most 224.
    """
    text: Fields = {FIELDS[role]: column.name for role, column in roles.items() if role in FIELDS}
    if measured := next((roles[role] for role in KNOWN["measured"] if role in roles), None):
        some = [str(value) for value in measured.sample if value is not None]
        sizes = sorted(len(each) if "chain" in roles else len(re.findall(r"\w+|[^\w\s]", each)) for each in some)
        size = sizes[int(0.95 * (len(sizes) - 1))]
        words = min(max(2 ** math.ceil(math.log2(max(2 * size, 1))), 32), 512)
        text["length"] = max(min(size + 2, LONGEST_CHAIN), 16) if "chain" in roles else words
    if "image" not in roles:
        return {"text": text}
    opened = [attempt(check_image, value) for value in roles["image"].sample[:100]]
    sides = sorted(min(image.size) for image in opened if not isinstance(image, InvalidRecord)) or [224]
    side = min(max(8 * round(sides[len(sides) // 2] / 8), 8), 224)
    if "boxes" in roles:
        counted = [attempt(boxes_and_classes, value) for value in roles["boxes"].sample]
        most = max(0 if isinstance(own, InvalidRecord) else len(own) for own in counted)
        return {"shortest_edge": side, "model": {"num_queries": max(QUERIES, most)}}
    size = max(divisor for divisor in range(1, max(side // PATCHES, 2) + 1) if side % divisor == 0)
    patches = {"image_size": side, "patch_size": size}
    if "caption" in roles:
        return {"text": text, "model": {"vision_config": patches}}
    return {"text": text, "model": patches, "augment": {"shift": side / 16}}


def shown(task: str, roles: Roles, recipe: Recipe, rows: str) -> dict[str, str]:
    """Return the table of inferred values; rows are named by the word that overrides them."""
    data, optimization, model = recipe.data, recipe.optimization, recipe.model
    image = model.config.get("vision_config", model.config)
    lines = {
        "data": f"{data.source}, {rows}",
        "task": "masked-lm" if model.architecture.endswith("ForMaskedLM") else task,
        **{f"column of {role}": f"{column.name} ({column.kind})" for role, column in roles.items()},
        "architecture": model.architecture,
        "init": model.init or "",
        "learning_rate": f"{optimization.learning_rate:g}, as of a pretrained model" if model.init else "",
        "model.image_size": "{image_size}, in patches of {patch_size}".format(**image) if "patch_size" in image else "",
        "model.num_queries": "{num_queries} objects an image".format(**image) if "num_queries" in image else "",
        "text.length": f"{recipe.text.length} tokens" if {*roles} & {*FIELDS} - {"caption", "class"} else "",
        "holdout, test_size": f"{data.holdout:g}, {data.test_size:g}, where the data have no such split",
        "max_steps": f"{optimization.max_steps:,} of batch_size={optimization.batch_size}",
        "watch": f"{recipe.output.watch}: the weights that are kept" if recipe.output.watch else "",
    }
    return {name: text for name, text in lines.items() if text}
