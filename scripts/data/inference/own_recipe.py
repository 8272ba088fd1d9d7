"""Infer the recipe of own data: the task by their columns, a model and its settings."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.boxes import boxes_and_classes
from qkv.scripts.data.columns import ANY, KNOWN, NAMES, UNCLEAR, Column, check_spelling, first, joined, longest
from qkv.scripts.data.examples import ORIGIN, ROWS, InvalidRecord, attempt
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.pretrained import fitted
from qkv.scripts.data.readers import UTF_8
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.keys import flat, merged
from qkv.scripts.recipes.loading import assign, build, is_data, load, names, pairs, task_word
from qkv.scripts.recipes.schema import Fields, Recipe

SETTINGS: dict[str, Fields] = table(__file__)
SAMPLE = 3200  # rows of a stream to guess from, and values of a column to measure
STEPS = (200, 3000)
LONGEST_CHAIN = 256  # tokens, for a model of pairs takes memory by their square
PATCHES = 8  # in a row of an image
QUERIES = 20  # of a detector, unless an image has more objects
PLAIN = ("string", "large_string", "bool", "int", "uint", "float", "decimal", "date", "time")  # beginnings of types
# The field of `text` that names the column of each role, and names of columns of two texts that are read together.
FIELDS, PAIRS = KNOWN["fields"], KNOWN["pairs"]
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
    if not checked["holdout"] and not has_validation:
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


def asked_roles(columns: Sequence[Column], text: Fields, where: str) -> Roles:
    """Return the columns that `text.column`, `text.label` and `text.target` name; ValueError for a missing one."""
    named: Roles = {column.name: column for column in columns}
    roles: Roles = {}
    for key in ("column", "label", "target", "pair", "task", "messages"):
        if name := str(text.get(key) or ""):
            parts = [name] if name in named or key != "label" else name.split(",")
            for part in parts:
                if part not in named and part.partition(".")[0] not in named:
                    raise ValueError(f"{where} has no column {part!r}; {did_you_mean(part, list(named), 'columns')}")
            roles[key] = named.get(name) or named.get(name.partition(".")[0]) or joined([named[part] for part in parts])
            if odd := [part for part in parts if len(parts) > 1 and not named[part].is_binary]:
                raise ValueError(
                    f"text.label={name}: {odd[0]!r} of {where} is no column of 0 and 1, which several labels are; name "
                    f"one column, as in text.label={odd[0]}"
                )
    return roles


def guess_task(columns: Sequence[Column], asked: Roles, where: str, task: str | None = None) -> tuple[str, Roles]:
    """Return the likeliest task and its columns by role; `asked` columns are kept. ValueError for none."""
    if task in (None, "regression") and "target" not in asked:
        usual = [column for column in columns if column.name.lower() in NAMES["number"]]
        check_spelling([asked["label"]] if "label" in asked else usual, where)
    files = next((column for column in columns if column.kind in ("image", "audio")), None)
    likely = [*(tasks_of_texts(columns, asked, task) if files is None else tasks_of_files(files, columns, asked))]
    likely = [(name, roles) for name, roles in likely if all(roles.values())]
    have = ", ".join(f"{column.name} ({column.kind})" for column in columns if column.kind != "id") or "none"
    if not likely:
        raise ValueError(
            f"{where} has no columns that a task is known for; they are {have}; add texts, beside images a class (or "
            "folders of classes, in train and test if these are splits), a caption or boxes, beside recordings texts, "
            "or name columns, as in text.column=title text.label=kind, text.target=answer or text.messages=chat"
        )
    likeliest = next((each for each in likely if task in (None, each[0])), None)
    if likeliest is None:
        named = KNOWN["typed"].get(task, "text.label=kind")
        raise ValueError(f"task={task}: {where} has no column for it, but {have}; name one, as in {named}")
    learned = {column.name for column in likeliest[1].values() if column}
    rest = [column for column in columns if column.name not in learned]
    also = [column.name for column in rest if column.kind == "number" and column.name.lower() in NAMES["number"]]
    if likeliest[0] == "causal-lm":
        kinds = ("list", "number", "class", UNCLEAR)
        also = [column.name for column in rest if column.kind in kinds or column.name.lower() in NAMES["class"]]
    if also and likeliest[0] in ("causal-lm", "regression") and task is None and not asked.keys() & {"label", "target"}:
        raise ValueError(
            f"{where}: {', '.join(also)} may be learned, too; name the column that is, as in text.label={also[0]}, "
            "several columns of 0 and 1 with commas between them, or learn the texts alone by task=causal-lm"
        )
    return likeliest[0], likeliest[1] | {role: asked[role] for role in asked if role == "task"}  # type: ignore[return-value]


def tasks_of_texts(columns: Sequence[Column], asked: Roles, task: str | None) -> Iterator[Guess]:
    """Yield the tasks of texts, the likeliest first, each with its columns, None where one is missing."""
    dialogue = None if asked else first(columns, "dialogue", "nested", "list")
    yield "chat", {"dialogue": asked.get("messages", dialogue)}
    named = {column.name.lower(): column for column in columns}
    couples = ((named[one], named[other]) for one, other in PAIRS.items() if one in named and other in named)
    if task == "question-answering" or not asked:
        roles = ("context", "question", "answers")
        yield "question-answering", {role: asked.get(FIELDS[role]) or first(columns, role, ANY) for role in roles}
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
        yield task_of_label(label, texts, task)
    elif target:
        yield ("causal-lm" if task == "causal-lm" else "seq2seq"), {"source": text, "target": target}
    elif text:
        yield from tasks_of_rest(text, rest, texts, asked, task)
    yield (task if task in ("masked-lm", "denoising") else "causal-lm"), {"text": text}


def task_of_label(label: Column, texts: Mapping[str, Column | None], task: str | None) -> Guess:
    """Return the task of texts and a column that is named as their label."""
    both = label.kind == "list" and texts["text"] and texts["text"].kind == "list"
    if task == "token-classification" or (task is None and both):
        return "token-classification", {"words": texts["text"], "tags": label}
    kind = task or {"number": "regression", "list": "multi-label"}.get(label.kind, "")
    if role := {"regression": "number", "multi-label": "classes"}.get(kind):
        return kind, {**texts, role: label}
    return "text-classification", {**texts, "class": label}


def tasks_of_rest(
    text: Column, rest: Sequence[Column], texts: Mapping[str, Column | None], asked: Roles, task: str | None
) -> Iterator[Guess]:
    """Yield the tasks that other columns of a text may be for.

    A column that is called a target beside one that is called its source is a text, however often its values repeat.
    """
    target = None if "column" in asked else first(rest, "target")
    both_named = text.name.lower() in NAMES["source"] and target is not None and target.name.lower() != "target"
    writes = "causal-lm" if task == "causal-lm" else "seq2seq"
    yield writes, {"source": text, "target": target if both_named else None}
    yield "regression", {**texts, "number": first(rest, "number", "number")}
    called, flags = first(rest, "class", "class"), [column for column in rest if column.is_binary]
    is_usual = called is not None and called.name.lower() in NAMES["class"]
    several = first(rest, "classes", "list") or (joined(flags) if len(flags) > 1 and not is_usual else None)
    yield "multi-label", {**texts, "classes": several}
    yield "text-classification", {**texts, "class": called}
    yield "seq2seq", {"source": text, "target": target if target and target.kind in ("text", "date") else None}
    yield "text-classification", {**texts, "class": first(rest, "class")}
    last = None if "column" in asked else (target if task else None) or longest(rest)
    yield "seq2seq", {"source": text, "target": last}


def tasks_of_files(files: Column, columns: Sequence[Column], asked: Roles) -> Iterator[Guess]:
    """Yield the tasks of images or recordings by the columns beside them, the likeliest first."""
    rest = [column for column in columns if column is not files and not column.is_json]
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
        "model.num_queries": "{num_queries} objects of an image at most".format(**image)
        if "num_queries" in image
        else "",
        "text.length": f"{recipe.text.length} tokens" if {*roles} & {*FIELDS} - {"caption", "class"} else "",
        "holdout, test_size": f"{data.holdout:g}, {data.test_size:g}, where the data have no such split",
        "max_steps": f"{optimization.max_steps:,} of batch_size={optimization.batch_size}",
        "watch": f"{recipe.output.watch}: the weights that are kept" if recipe.output.watch else "",
    }
    return {name: text for name, text in lines.items() if text}
