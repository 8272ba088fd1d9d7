"""Infer the recipe of own data: the task by their columns, a model and its settings."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.phases import is_first_process, say
from qkv.scripts.common.resources import table
from qkv.scripts.common.tables import print_table
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.columns import NAMES, Column, first, is_binary, kind_of, longest
from qkv.scripts.data.examples import ORIGIN, InvalidRecord, attempt
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.pretrained import fitted
from qkv.scripts.data.readers import UTF_8
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.keys import flat, merged
from qkv.scripts.recipes.loading import assign, build, is_data, load, names, pairs
from qkv.scripts.recipes.schema import Fields, Recipe

SETTINGS: dict[str, Fields] = table(__file__)
SAMPLE = 3200  # rows of a stream to guess from, and values of a column to measure
STEPS = (200, 3000)
LONGEST_CHAIN = 256  # tokens, for a model of pairs takes memory by their square
PATCHES = 8  # in a row of an image
PLAIN = {"string", "large_string", "bool", "int64", "int32", "float64", "float32"}
# The field of `text` that names the column of each role.
FIELDS = {"text": "column", "source": "column", "words": "column", "chain": "column", "caption": "column",
          "second text": "pair", "target": "target", "class": "label", "number": "label", "tags": "label",
          "structure": "label"}  # fmt: skip
# Columns of two texts that are read together.
PAIRS = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2", "text_a": "text_b",
         "text": "text_pair"}  # fmt: skip
Roles = dict[str, Column]
Guess = tuple[str, dict[str, Column | None]]  # a task and its columns by role


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
    task = next((word.removeprefix("task=") for word in words if word.startswith("task=")), None)
    if task not in (None, *SETTINGS):
        raise ValueError(f"task={task!r} is not known; {did_you_mean(str(task), list(SETTINGS), 'tasks')}")
    for key, value in pairs(resolve([word for word in words if not word.startswith("task=")]), "text.label=kind"):
        assign(given, key, value)
    streaming, has_validation = not is_local(where), "validation" in splits(where)
    columns, count = described(read(where, streaming=streaming, encoding=str(given.get("encoding", UTF_8))), where)
    task, roles = guess_task(columns, asked_roles(columns, given.get("text") or {}, where), where, task)
    name = re.sub(r"[^\w.-]+", "-", Path(where).stem if is_local(where) else where)
    own = {"name": name, "title": "", "data": where, "holdout": 0.0 if has_validation else 0.1}
    values = fitted(merged(merged(own, fields_of(roles)), SETTINGS[task]), given)
    usual = values.pop("epochs")
    checked = flat(build(merged(values, given)))
    typed = {key: checked[key] for key in given if key in checked}
    values |= length_of_training(typed, checked["batch_size"], count, usual)
    if not checked["holdout"] and not has_validation:
        del values["watch"]
    recipe = build(merged(values, given))
    return recipe, shown(task, roles, columns, recipe, f"{'at least ' * (streaming and count == SAMPLE)}{count:,} rows")


def described(data: Any, where: str) -> tuple[list[Column], int]:
    """Describe the columns of all rows, or of the first ones of a stream; ValueError where there are none."""
    rows = data if isinstance(data, Dataset) else Dataset.from_list(list(islice(data, SAMPLE)), data.features)
    if "_invalid" in rows.column_names:
        rows = rows.select([row for row, reason in enumerate(rows["_invalid"]) if reason is None])
    if not len(rows):
        raise ValueError(f"{where} holds no row that can be read; give a file with rows")
    columns, few = list[Column](), rows.select(range(min(len(rows), SAMPLE // 10)))
    for name, feature in rows.features.items():
        if name not in ORIGIN:
            own = (rows if getattr(feature, "dtype", "") in PLAIN else few)[name][:]
            kind = kind_of(name, feature, own)
            if isinstance(feature, ClassLabel):
                own = [feature.names[number] for number in own if number is not None and number >= 0]
            columns.append(Column(name, kind, own))
    return columns, len(rows)


def length_of_training(given: Fields, batch_size: int, rows: int, epochs: int) -> Fields:
    """Return the length of a training and the fields that follow: some epochs, in bounds, unless it is typed."""
    count = min(max(math.ceil(rows * epochs / batch_size), STEPS[0]), STEPS[1])
    if "epochs" in given:
        count = math.ceil(rows * given["epochs"] / batch_size)
    count = given.get("max_steps", count)
    return {"max_steps": count, "warmup_steps": count // 10, "eval_every": math.ceil(count / 5), "log_every": 10}


def asked_roles(columns: Sequence[Column], text: Fields, where: str) -> Roles:
    """Return the columns that `text.column`, `text.label` and `text.target` name; ValueError for a missing one."""
    named: Roles = {column.name: column for column in columns}
    roles: Roles = {}
    for key in ("column", "label", "target", "pair"):
        if name := str(text.get(key) or ""):
            if (column := named.get(name) or named.get(name.partition(".")[0])) is None:
                raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, list(named), 'columns')}")
            roles[key] = column
    return roles


def guess_task(columns: Sequence[Column], asked: Roles, where: str, task: str | None = None) -> tuple[str, Roles]:
    """Return the likeliest task and its columns by role; `asked` columns are kept. ValueError for none."""
    files = next((column for column in columns if column.kind in ("image", "audio")), None)
    likely = [*(tasks_of_texts(columns, asked, task) if files is None else tasks_of_files(files, columns, asked))]
    likely = [(name, roles) for name, roles in likely if all(roles.values())]
    have = ", ".join(f"{column.name} ({column.kind})" for column in columns if column.kind != "id") or "none"
    if not likely:
        raise ValueError(
            f"{where} has no columns that a task is known for; they are {have}; add texts, or beside images a class, a "
            "caption or boxes, beside recordings what is said, or name columns, as in text.column=title text.label=kind"
        )
    likeliest = next((each for each in likely if task in (None, each[0])), None)
    if likeliest is None:
        raise ValueError(f"task={task}: {where} has no column for it, but {have}; name one, as in text.label=kind")
    several = [column.name for column in columns if column.kind == "list" or is_binary(column.values)]
    alone = likeliest[0] == "causal-lm" or (len(several) > 1 and likeliest[0] == "text-classification")
    if several and alone and task is None and not asked.keys() & {"label", "target"}:
        raise ValueError(
            f"{where}: {', '.join(several)} may say several classes of a row, which no task learns; name the column "
            f"of one class, as in text.label={several[0]}, or learn the texts alone by task=causal-lm"
        )
    return likeliest  # type: ignore[return-value]


def tasks_of_texts(columns: Sequence[Column], asked: Roles, task: str | None) -> Iterator[Guess]:
    """Yield the tasks of texts, the likeliest first, each with its columns, None where one is missing."""
    named = {column.name.lower(): column for column in columns}
    couples = ((named[one], named[other]) for one, other in PAIRS.items() if one in named and other in named)
    text, second = (asked["column"], asked.get("pair")) if "column" in asked else next(couples, (None, None))
    if text is None:
        words, tags = first(columns, "words", "list"), first(columns, "tags", "list")
        yield "token-classification", {"words": words, "tags": tags if tags is not words else None}
        chain = first(columns, "chain", "text", "class") or longest(columns)
        structures = [column for column in columns if column.kind == "structure"]
        yield "contact-prediction", {"chain": chain, "structure": next(iter(structures), None)}
        text = first(columns, "source", "text") or first(columns, "text") or longest(columns)
    rest = [column for column in columns if column not in (text, second)]
    texts = {"text": text, **({"second text": second} if second else {})}
    label, target = asked.get("label"), asked.get("target")
    if label:
        if task == "regression" or (task is None and label.kind == "number"):
            yield "regression", texts | {"number": label}
        else:
            yield "text-classification", texts | {"class": label}
    elif target:
        yield "seq2seq", {"source": text, "target": target}
    elif text:
        yield from tasks_of_rest(text, rest, texts, asked, task)
    yield ("masked-lm" if task == "masked-lm" else "causal-lm"), {"text": text}


def tasks_of_rest(
    text: Column, rest: Sequence[Column], texts: Mapping[str, Column | None], asked: Roles, task: str | None
) -> Iterator[Guess]:
    """Yield the tasks that other columns of a text may be for.

    A column that is called a target beside one that is called its source is a text, however often its values repeat.
    """
    target = None if "column" in asked else first(rest, "target")
    both_named = text.name.lower() in NAMES["source"] and target is not None and target.name.lower() != "target"
    yield "seq2seq", {"source": text, "target": target if both_named else None}
    yield "regression", {**texts, "number": first(rest, "number", "number")}
    yield "text-classification", {**texts, "class": first(rest, "class", "class")}
    yield "seq2seq", {"source": text, "target": target if target is not None and target.kind == "text" else None}
    yield "text-classification", {**texts, "class": first(rest, "class")}
    last = None if "column" in asked else (target if task else None) or longest(rest)
    yield "seq2seq", {"source": text, "target": last}


def tasks_of_files(files: Column, columns: Sequence[Column], asked: Roles) -> Iterator[Guess]:
    """Yield the tasks of images or recordings by the columns beside them, the likeliest first."""
    rest = [column for column in columns if column is not files]
    text = asked.get("column") or first(rest, "text") or longest(rest)
    if files.kind == "audio":
        yield "speech-recognition", {"audio": files, "text": text}
        return
    boxes = [column for column in rest if column.kind == "boxes"]
    yield "object-detection", {"image": files, "boxes": next(iter(boxes), None)}
    yield "image-classification", {"image": files, "class": asked.get("label") or first(rest, "class")}
    yield "captions", {"image": files, "caption": text}


def fields_of(roles: Roles) -> Fields:
    """Return the fields that follow from columns: their names, a length that holds about 95 % of texts, and sizes.

    Images are shown at the median of their shorter sides, in steps of eight pixels, at most 224.
    """
    text: Fields = {FIELDS[role]: column.name for role, column in roles.items() if role in FIELDS}
    if measured := next((roles[role] for role in ("text", "source", "words", "chain") if role in roles), None):
        some = map(str, measured.values[:: math.ceil(len(measured.values) / SAMPLE)])
        sizes = sorted(len(each) if "chain" in roles else len(re.findall(r"\w+|[^\w\s]", each)) for each in some)
        size = sizes[int(0.95 * (len(sizes) - 1))]
        words = min(max(2 ** math.ceil(math.log2(max(2 * size, 1))), 32), 512)
        text["length"] = max(min(size + 2, LONGEST_CHAIN), 16) if "chain" in roles else words
    if "image" not in roles:
        return {"text": text}
    opened = [attempt(check_image, value) for value in roles["image"].values[:100]]
    sides = sorted(min(image.size) for image in opened if not isinstance(image, InvalidRecord)) or [224]
    side = min(max(8 * round(sides[len(sides) // 2] / 8), 8), 224)
    if "boxes" in roles:
        return {"shortest_edge": side}
    size = max(divisor for divisor in range(1, max(side // PATCHES, 2) + 1) if side % divisor == 0)
    patches = {"image_size": side, "patch_size": size}
    if "caption" in roles:
        return {"text": text, "model": {"vision_config": patches}}
    return {"text": text, "model": patches, "augment": {"shift": side / 16}}


def shown(task: str, roles: Roles, columns: Sequence[Column], recipe: Recipe, rows: str) -> dict[str, str]:
    """Return the table of inferred values; rows are named by the word that overrides them."""
    data, optimization, model = recipe.data, recipe.optimization, recipe.model
    classes = Counter(str(value) for value in roles["class"].values) if "class" in roles else {}
    image, used = model.config.get("vision_config", model.config), {column.name for column in roles.values()}
    lines = {
        "data": f"{data.source}, {rows}",
        "task": "masked-lm" if model.architecture.endswith("ForMaskedLM") else task,
        **{f"column of {role}": f"{column.name} ({column.kind})" for role, column in roles.items()},
        "columns not used": ", ".join(column.name for column in columns if column.name not in used),
        "classes": ", ".join(f"{name} {count}" for name, count in sorted(classes.items())[:12]),
        "architecture": model.architecture,
        "init": model.init or "",
        "learning_rate": f"{optimization.learning_rate:g}, as of a pretrained model" if model.init else "",
        "model.image_size": "{image_size}, in patches of {patch_size}".format(**image) if "patch_size" in image else "",
        "text.length": f"{recipe.text.length} tokens" if {*roles} & {*FIELDS} - {"caption", "class"} else "",
        "holdout, test_size": f"{data.holdout:g}, {data.test_size:g}, where the data have no such split",
        "max_steps": f"{optimization.max_steps:,} of batch_size={optimization.batch_size}",
        "watch": f"{recipe.output.watch}: the weights that are kept" if recipe.output.watch else "",
    }
    return {name: text for name, text in lines.items() if text}
