"""Infer from own data what can be learned from them: the task, a model and its settings, as a recipe."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from datasets import ClassLabel, Dataset

from qkv.scripts.common.environment import local_files
from qkv.scripts.common.phases import is_first_process, say
from qkv.scripts.common.tables import print_table
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.encoding import UTF_8
from qkv.scripts.data.inference.columns import NAMES, PAIRS, Column, first, kind_of, longest
from qkv.scripts.data.inference.pretrained_start import fitted
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.pieces import ORIGIN, InvalidRecord, attempt
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.keys import flat, merged
from qkv.scripts.recipes.loading import assign, build, is_data, load, names, pairs
from qkv.scripts.recipes.schema import Fields, Recipe

SETTINGS = Path(__file__).with_suffix(".yaml")
SAMPLE = 3200  # rows of a stream to guess from, and values of a column to measure
STEPS = (200, 3000)
LONGEST_CHAIN = 256  # tokens, for a model of pairs takes memory by their square
PATCHES = 8  # in a row of an image
PLAIN = {"string", "large_string", "bool", "int64", "int32", "float64", "float32"}
MASKED = "QkvEncoderForMaskedLM"
# What each task of texts learns beside them.
ROLES = {"text-classification": "class", "regression": "number", "seq2seq": "target", "causal-lm": "nothing"}
Roles = Mapping[str, Column]


@dataclass(frozen=True)
class Guess:
    """The task of own data, their columns by role, and the fields of the recipe that follow."""

    task: str
    roles: Roles
    fields: Fields


def recipe_of(name: str, words: Sequence[str] = ()) -> Recipe:
    """Load the recipe of that name, or infer one from data of that name, and show what was inferred."""
    if not is_data(name):
        if local_files(name) and name in names():
            say(f"{name} is the recipe of this name; write ./{name} for the data here")
        return load(name, words)
    recipe, inferred = infer(name, words)
    if is_first_process():
        print_table("inferred; key=value overrides it", inferred)
    return recipe


def infer(where: str, words: Sequence[str] = ()) -> tuple[Recipe, dict[str, str]]:
    """Return a recipe for own data, and what it was inferred from, to be shown; `key=value` words count more.

    ValueError names the columns that there are, and a line to type.
    """
    given: Fields = {}
    task = next((word.removeprefix("task=") for word in words if word.startswith("task=")), None)
    for key, value in pairs(resolve([word for word in words if not word.startswith("task=")]), "text.label=kind"):
        assign(given, key, value)
    streaming = bool(given.get("streaming")) or not local_files(where)
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    if task not in (None, "masked-lm", *settings):
        raise ValueError(f"task={task!r} is not known; {did_you_mean(str(task), [*settings, 'masked-lm'], 'tasks')}")
    if task == "masked-lm":
        task, given = "causal-lm", {"architecture": MASKED} | given
    columns, count = described(read(where, streaming=streaming, encoding=str(given.get("encoding", UTF_8))), where)
    guess = guess_task(columns, asked_roles(columns, given.get("text") or {}, where), where, task)
    name = re.sub(r"[^\w.-]+", "-", "-".join(path.stem for path in local_files(where)) or where)
    own = {"name": name, "title": "", "data": where, "holdout": 0.0 if "validation" in splits(where) else 0.1}
    values = fitted(merged(merged(own, settings[guess.task]), guess.fields), given)
    usual = values.pop("epochs")
    checked = flat(build(merged(values, given)))
    typed = {key: checked[key] for key in given if key in checked}
    values |= length_of_training(typed, checked["batch_size"], count, usual)
    if not checked["holdout"] and "validation" not in splits(where):
        del values["watch"]
    recipe = build(merged(values, given))
    return recipe, shown(guess, columns, recipe, f"{'at least ' * (streaming and count == SAMPLE)}{count:,} rows")


def described(data: Any, where: str) -> tuple[list[Column], int]:
    """Describe the columns of all rows, or of the first ones of a stream; ValueError where there are none."""
    if not isinstance(data, Dataset):
        rows = list(islice((row for row in data if row.get("_invalid") is None), SAMPLE))
        features, values = data.features or {}, {name: [row.get(name) for row in rows] for name in dict(*rows[:1])}
    else:
        reasons, features = data["_invalid"] if "_invalid" in data.features else [None] * len(data), data.features
        rows = data.select([row for row, reason in enumerate(reasons) if reason is None])
        few = rows.select(range(min(len(rows), SAMPLE // 10)))
        plain = {name: getattr(kind, "dtype", "") in PLAIN for name, kind in features.items()}
        values = {name: (rows if own else few)[name][:] for name, own in plain.items()}
    if not len(rows):
        raise ValueError(f"{where} holds no row that can be read; give a file with rows")
    kept = {name: own for name, own in values.items() if name not in ORIGIN}
    columns = [Column(name, kind_of(name, features.get(name), own), own) for name, own in kept.items()]
    named = {name: kind.names for name, kind in features.items() if isinstance(kind, ClassLabel)}
    return [
        Column(each.name, each.kind, [named[each.name][at] for at in each.values if at is not None and at >= 0])
        if each.name in named else each
        for each in columns
    ], len(rows)  # fmt: skip


def length_of_training(given: Fields, batch_size: int, rows: int, epochs: int) -> Fields:
    """Return the length of a training and what follows from it: the one given, or some epochs, in bounds."""
    count = min(max(math.ceil(rows * epochs / batch_size), STEPS[0]), STEPS[1])
    if "epochs" in given:
        count = math.ceil(rows * given["epochs"] / batch_size)
    count = given.get("max_steps", count)
    return {"max_steps": count, "warmup_steps": count // 10, "eval_every": math.ceil(count / 5), "log_every": 10}


def asked_roles(columns: Sequence[Column], text: Fields, where: str) -> Roles:
    """Return the columns that `text.column`, `text.label` and `text.target` name; ValueError for a missing one."""
    named = {column.name: column for column in columns}
    asked = {key: str(text[key]) for key in ("column", "label", "target", "pair") if text.get(key)}
    asked = {key: name if name in named else name.partition(".")[0] for key, name in asked.items()}
    for name in asked.values():
        if name not in named:
            raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, list(named), 'columns')}")
    return {key: named[name] for key, name in asked.items()}


def guess_task(columns: Sequence[Column], asked: Roles, where: str, task: str | None = None) -> Guess:
    """Choose the task by the kinds and names of columns, and by those that are asked for; ValueError for none."""
    files = next((column for column in columns if column.kind in ("image", "audio")), None)
    guess = guess_texts(columns, asked, task) if files is None else guess_files(files, columns, asked)
    have = ", ".join(f"{column.name} ({column.kind})" for column in columns if column.kind != "id") or "none"
    if guess is None:
        raise ValueError(
            f"{where} has no columns that a task is known for; they are {have}; add texts, or beside images a class, a "
            "caption or boxes, beside recordings what is said, or name columns, as in text.column=title text.label=kind"
        )
    if task not in (None, guess.task):
        raise ValueError(f"task={task}: {where} has no column for it, but {have}; name one, as in text.label=kind")
    several = [column.name for column in columns if column.kind == "list" or column.is_binary]
    alone = guess.task == "causal-lm" or (len(several) > 1 and guess.task == "text-classification")
    if several and alone and task is None and not asked.keys() & {"label", "target"}:
        raise ValueError(
            f"{where}: {', '.join(several)} may say several classes of a row, which no task learns; name the column "
            f"of one class, as in text.label={several[0]}, or learn the texts alone by task=causal-lm"
        )
    return guess


def guess_texts(columns: Sequence[Column], asked: Roles, task: str | None) -> Guess | None:
    """Choose the task of texts: classes or other texts beside them, or the texts alone."""
    words, tags = first(columns, "words", "list"), first(columns, "tags", "list")
    if words and tags and words is not tags and "column" not in asked:
        return Guess("token-classification", {"words": words, "tags": tags}, text_fields(words, label=tags.name))
    structure = next((column for column in columns if column.kind == "structure"), None)
    if structure and "column" not in asked and (chain := first(columns, "chain", "text", "class") or longest(columns)):
        return Guess("contact-prediction", {"chain": chain, "structure": structure}, chain_fields(chain, structure))
    named = {column.name.lower(): column for column in columns}
    both = ((named[one], named[other]) for one, other in PAIRS.items() if one in named and other in named)
    pair = (asked["column"], asked["pair"]) if {"column", "pair"} <= asked.keys() else None
    pair = next(both, None) if "column" not in asked else pair
    source = asked.get("column") or (pair and pair[0]) or first(columns, "source", "text") or first(columns, "text")
    source = source or longest(columns)
    if source is None:
        return None
    rest = [column for column in columns if column not in (source, *(pair or ()))]
    role, column = learned(source, rest, asked, task and ROLES.get(task))
    if column is None:
        return Guess("causal-lm", {"text": source}, text_fields(source))
    if role == "target":
        return Guess("seq2seq", {"source": source, "target": column}, text_fields(source, target=column.name))
    texts = {"text": source, **({"second text": pair[1]} if pair else {})}
    fields = text_fields(source, label=column.name, **({"pair": pair[1].name} if pair else {}))
    if role == "number":
        return Guess("regression", {**texts, "number": column}, fields | {"model": {"problem_type": "regression"}})
    return Guess("text-classification", {**texts, "class": column}, fields)


def learned(source: Column, rest: Sequence[Column], asked: Roles, only: str | None) -> tuple[str, Column | None]:
    """Return what is learned of texts, and its column: a number, a class, or a text; `only` one role where it is asked.

    A column that is called a target beside one that is called its source is a text, however often its values repeat.
    """
    if "target" in asked:
        return "target", asked["target"]
    if "label" in asked:
        return (only or ("number" if asked["label"].kind == "number" else "class")), asked["label"]
    target = None if "column" in asked else first(rest, "target")
    both_named = source.name.lower() in NAMES["source"] and target is not None and target.name.lower() != "target"
    by_role = [
        ("target", target if both_named else None),
        ("number", first(rest, "number", "number")),
        ("class", first(rest, "class", "class")),
        ("target", target if target is not None and target.kind == "text" else None),
        ("class", first(rest, "class")),
        ("target", None if "column" in asked else (target if only else None) or longest(rest)),
    ]
    return next(((role, own) for role, own in by_role if own is not None and only in (None, role)), ("nothing", None))


def guess_files(files: Column, columns: Sequence[Column], asked: Roles) -> Guess | None:
    """Choose the task of images or recordings by what stands beside them."""
    rest = [column for column in columns if column is not files]
    text = asked.get("column") or first(rest, "text") or longest(rest)
    if files.kind == "audio":
        fields = {"text": {"column": text.name, "length": 128}} if text else {}
        return Guess("speech-recognition", {"audio": files, "text": text}, fields) if text else None
    boxes = next((column for column in rest if column.kind == "boxes"), None)
    label, side = asked.get("label") or first(rest, "class"), side_of(files)
    if boxes is not None:
        return Guess("object-detection", {"image": files, "boxes": boxes}, {"shortest_edge": side})
    size = max(divisor for divisor in range(1, max(side // PATCHES, 2) + 1) if side % divisor == 0)
    patches = {"image_size": side, "patch_size": size}
    if label is not None:
        fields = {"model": patches, "augment": {"shift": side / 16}, "text": {"label": label.name}}
        return Guess("image-classification", {"image": files, "class": label}, fields)
    if text is None:
        return None
    fields = {"text": {"column": text.name, "vocab_size": 1024}, "model": {"vision_config": patches}}
    return Guess("captions", {"image": files, "caption": text}, fields)


def text_fields(source: Column, **columns: str) -> Fields:
    """Return the fields of texts: their columns, and a length that holds about 95 % of them."""
    some = source.values[:: math.ceil(len(source.values) / SAMPLE)]
    words = sorted(len(re.findall(r"\w+|[^\w\s]", str(value))) for value in some)
    tokens = max(2 * words[int(0.95 * (len(words) - 1))], 1)
    return {"text": {"column": source.name, "length": min(max(2 ** math.ceil(math.log2(tokens)), 32), 512), **columns}}


def chain_fields(chain: Column, structure: Column) -> Fields:
    """Return the fields of chains: their columns, and a length that holds 95 % of them, up to what memory allows."""
    residues = sorted(len(str(value)) for value in chain.values)
    length = min(residues[int(0.95 * (len(residues) - 1))] + 2, LONGEST_CHAIN)
    return {"text": {"column": chain.name, "label": structure.name, "length": max(length, 16)}}


def side_of(images: Column) -> int:
    """Return the size to show images at: the median of their shorter sides, in steps of eight pixels, at most 224."""
    opened = [attempt(lambda value=value: check_image(value)) for value in images.values[:100]]  # type: ignore[misc]
    sides = sorted(min(image.size) for image in opened if not isinstance(image, InvalidRecord))
    middle = sides[len(sides) // 2] if sides else 224
    return min(max(8 * round(middle / 8), 8), 224)


def shown(guess: Guess, columns: Sequence[Column], recipe: Recipe, rows: str) -> dict[str, str]:
    """Return what was inferred, to be shown before a training; rows are named by the word that overrides them."""
    data, optimization = recipe.data, recipe.optimization
    used = {column.name for column in guess.roles.values()}
    classes = Counter(str(value) for value in guess.roles["class"].values) if "class" in guess.roles else {}
    image = recipe.model.config.get("vision_config", recipe.model.config)
    patched, started = "patch_size" in image, recipe.model.init is not None
    lines = {
        "data": f"{data.source}, {rows}",
        "task": "masked-lm" if recipe.model.architecture.endswith("ForMaskedLM") else guess.task,
        **{f"column of {role}": f"{column.name} ({column.kind})" for role, column in guess.roles.items()},
        "columns not used": ", ".join(column.name for column in columns if column.name not in used),
        "classes": ", ".join(f"{name} {count}" for name, count in sorted(classes.items())[:12]),
        "architecture": recipe.model.architecture,
        "init": recipe.model.init or "",
        "learning_rate": f"{optimization.learning_rate:g}, as of a pretrained model" if started else "",
        "model.image_size": f"{image['image_size']}, in patches of {image['patch_size']}" if patched else "",
        "text.length": f"{recipe.text.length} tokens" if "length" in guess.fields.get("text", {}) else "",
        "holdout, test_size": f"{data.holdout:g}, {data.test_size:g}, where the data have no such split",
        "max_steps": f"{optimization.max_steps:,} of batch_size={optimization.batch_size}",
        "watch": f"{recipe.output.watch}: the weights that are kept" if recipe.output.watch else "",
    }
    return {name: text for name, text in lines.items() if text}
