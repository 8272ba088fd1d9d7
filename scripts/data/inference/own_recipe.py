"""Infer from own data what can be learned from them: the task, a model and its settings, as a recipe."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from qkv.scripts.common.environment import local_files
from qkv.scripts.common.phases import is_first_process, say
from qkv.scripts.common.tables import print_table
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.encoding import UTF_8
from qkv.scripts.data.inference.columns import PAIRS, Column, describe, first, is_image, longest
from qkv.scripts.data.inference.pretrained_start import fitted
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.keys import flat, merged
from qkv.scripts.recipes.loading import assign, build, is_data, load, names, pairs
from qkv.scripts.recipes.schema import Fields, Recipe

SETTINGS = Path(__file__).with_suffix(".yaml")
SAMPLE = 3200  # rows that are read to guess from; with more, every training has the most steps
STEPS = (200, 3000)
LONGEST_CHAIN = 256  # tokens, for a model of pairs takes memory by their square
PATCHES = 8  # in a row of an image
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
    for key, value in pairs(resolve(words), "text.label=kind"):
        assign(given, key, value)
    data = read(where, streaming=True, encoding=str(given.get("encoding", UTF_8)))
    rows = list(islice((row for row in data if row.get("_invalid") is None), SAMPLE))
    if not rows:
        raise ValueError(f"{where} holds no row that can be read; give a file with rows")
    columns = describe(rows, data.features)
    guess = guess_task(columns, asked_roles(columns, given.get("text") or {}, where), where)
    name = re.sub(r"[^\w.-]+", "-", "-".join(path.stem for path in local_files(where)) or where)
    own = {"name": name, "title": "", "data": where, "holdout": 0.0 if "validation" in splits(where) else 0.1}
    values = merged(merged(own, yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))[guess.task]), guess.fields)
    values = fitted(values, given)
    usual = values.pop("epochs")
    checked = flat(build(merged(values, given)))
    typed = {key: checked[key] for key in given if key in checked}
    count = sum(1 for _ in data) if "epochs" in given else len(rows)
    values |= length_of_training(typed, checked["batch_size"], count, usual)
    if not checked["holdout"] and "validation" not in splits(where):
        del values["watch"]
    recipe = build(merged(values, given))
    return recipe, shown(guess, columns, recipe, len(rows))


def length_of_training(given: Fields, batch_size: int, rows: int, epochs: int) -> Fields:
    """Return the length of a training and what follows from it: what is given, or so many times all rows, in bounds."""
    count = min(max(math.ceil(rows * epochs / batch_size), STEPS[0]), STEPS[1])
    if "epochs" in given:
        count = math.ceil(rows * given["epochs"] / batch_size)
    count = given.get("max_steps", count)
    return {"max_steps": count, "warmup_steps": count // 10, "eval_every": math.ceil(count / 5), "log_every": 10}


def asked_roles(columns: Sequence[Column], text: Fields, where: str) -> Roles:
    """Return the columns that `text.column`, `text.label` and `text.target` name; ValueError for a missing one."""
    named = {column.name: column for column in columns}
    asked = {key: str(text[key]).partition(".")[0] for key in ("column", "label", "target", "pair") if text.get(key)}
    for name in asked.values():
        if name not in named:
            raise ValueError(f"{where} has no column {name!r}; {did_you_mean(name, list(named), 'columns')}")
    return {key: named[name] for key, name in asked.items()}


def guess_task(columns: Sequence[Column], asked: Roles, where: str) -> Guess:
    """Choose the task by the kinds and names of columns, and by those that are asked for; ValueError for none."""
    files = next((column for column in columns if column.kind in ("image", "audio")), None)
    guess = guess_texts(columns, asked) if files is None else guess_files(files, columns, asked)
    if guess is None:
        have = ", ".join(f"{column.name} ({column.kind})" for column in columns) or "none"
        raise ValueError(
            f"{where} has no columns that a task is known for; they are {have}; add texts, or beside images a class, a "
            "caption or boxes, beside recordings what is said, or name columns, as in text.column=title text.label=kind"
        )
    return guess


def guess_texts(columns: Sequence[Column], asked: Roles) -> Guess | None:
    """Choose the task of texts: classes or other texts beside them, or the texts alone."""
    words, tags = first(columns, "words", "list"), first(columns, "tags", "list")
    if words and tags and words is not tags and "column" not in asked:
        return Guess("token-classification", {"words": words, "tags": tags}, text_fields(words, label=tags.name))
    structure = next((column for column in columns if column.kind == "structure"), None)
    if structure and "column" not in asked and (chain := first(columns, "chain", "text", "class") or longest(columns)):
        return Guess("contact-prediction", {"chain": chain, "structure": structure}, chain_fields(chain, structure))
    pair = pair_of(columns, asked)
    source = asked.get("column") or (pair and pair[0]) or first(columns, "source", "text") or first(columns, "text")
    source = source or longest(columns)
    if source is None:
        return None
    role, column = learned([column for column in columns if column not in (source, *(pair or ()))], asked)
    texts = {"text": source, **({"second text": pair[1]} if pair else {})}
    named = {"pair": pair[1].name} if pair else {}
    if column is None:
        return Guess("causal-lm", {"text": source}, text_fields(source))
    if role == "target":
        return Guess("seq2seq", {"source": source, "target": column}, text_fields(source, target=column.name))
    fields = text_fields(source, label=column.name, **named)
    if role == "number":
        return Guess("regression", {**texts, "number": column}, fields | {"model": {"problem_type": "regression"}})
    return Guess("text-classification", {**texts, "class": column}, fields)


def learned(rest: Sequence[Column], asked: Roles) -> tuple[str, Column | None]:
    """Return what is learned of texts, and its column: a number, a class, or a text where no texts were asked for."""
    if "target" in asked:
        return "target", asked["target"]
    if "label" in asked:
        return ("number" if asked["label"].kind == "number" else "class"), asked["label"]
    named = None if "column" in asked else first(rest, "target", "text")
    by_role = [("number", first(rest, "number", "number")), ("class", first(rest, "class", "class"))]
    by_role += [("target", named), ("class", first(rest, "class"))]
    spare = "target", None if "column" in asked else longest(rest)
    return next((choice for choice in by_role if choice[1] is not None), spare)


def pair_of(columns: Sequence[Column], asked: Roles) -> tuple[Column, Column] | None:
    """Return two columns of texts that are read together, by their usual names or as they are asked for."""
    if "column" in asked and "pair" in asked:
        return asked["column"], asked["pair"]
    named = {column.name.lower(): column for column in columns}
    both = ((named[one], named[other]) for one, other in PAIRS.items() if one in named and other in named)
    return None if "column" in asked else next(both, None)


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
    if label is not None:
        fields = {"model": patches(side), "augment": {"shift": side / 16}, "text": {"label": label.name}}
        return Guess("image-classification", {"image": files, "class": label}, fields)
    if text is None:
        return None
    fields = {"text": {"column": text.name, "vocab_size": 1024}, "model": {"vision_config": patches(side)}}
    return Guess("captions", {"image": files, "caption": text}, fields)


def text_fields(source: Column, **columns: str) -> Fields:
    """Return the fields of texts: their columns, and a length that holds about 95 % of them."""
    words = sorted(len(re.findall(r"\w+|[^\w\s]", str(value))) for value in source.values)
    tokens = max(2 * words[int(0.95 * (len(words) - 1))], 1)
    return {"text": {"column": source.name, "length": min(max(2 ** math.ceil(math.log2(tokens)), 32), 512), **columns}}


def chain_fields(chain: Column, structure: Column) -> Fields:
    """Return the fields of chains: their columns, and a length that holds 95 % of them, up to what memory allows."""
    residues = sorted(len(str(value)) for value in chain.values)
    length = min(residues[int(0.95 * (len(residues) - 1))] + 2, LONGEST_CHAIN)
    return {"text": {"column": chain.name, "label": structure.name, "length": max(length, 16)}}


def side_of(images: Column) -> int:
    """Return the size to show images at: the median of their shorter sides, in steps of eight pixels, at most 224."""
    sides = sorted(min(check_image(value).size) for value in images.values[:100] if is_image(value))
    middle = sides[len(sides) // 2] if sides else 224
    return min(max(8 * round(middle / 8), 8), 224)


def patches(side: int) -> Fields:
    """Return the size and patches of images: about eight patches in a row, of pixels that divide the size."""
    size = max(divisor for divisor in range(1, max(side // PATCHES, 2) + 1) if side % divisor == 0)
    return {"image_size": side, "patch_size": size}


def shown(guess: Guess, columns: Sequence[Column], recipe: Recipe, rows: int) -> dict[str, str]:
    """Return what was inferred, to be shown before a training; rows are named by the word that overrides them."""
    data, optimization = recipe.data, recipe.optimization
    lines = {"data": f"{data.source}, {'at least ' * (rows == SAMPLE)}{rows:,} rows", "task": guess.task}
    if recipe.model.architecture.endswith("ForMaskedLM"):
        lines["task"] = "masked-lm"
    lines |= {f"column of {role}": f"{column.name} ({column.kind})" for role, column in guess.roles.items()}
    used = {column.name for column in guess.roles.values()}
    lines["columns not used"] = ", ".join(column.name for column in columns if column.name not in used)
    classes = Counter(str(value) for value in guess.roles["class"].values) if "class" in guess.roles else {}
    lines["classes"] = ", ".join(f"{name} {count}" for name, count in sorted(classes.items())[:12])
    lines["architecture"] = recipe.model.architecture
    if recipe.model.init is not None:
        lines["init"] = recipe.model.init
        lines["learning_rate"] = f"{optimization.learning_rate:g}, as of a pretrained model"
    image = recipe.model.config.get("vision_config", recipe.model.config)
    if "patch_size" in image:
        lines["model.image_size"] = f"{image['image_size']}, in patches of {image['patch_size']}"
    lines["text.length"] = f"{recipe.text.length} tokens" if "text" in guess.fields else ""
    lines["holdout, test_size"] = f"{data.holdout:g}, {data.test_size:g}, where the data have no such split"
    lines["max_steps"] = f"{optimization.max_steps:,} of batch_size={optimization.batch_size}"
    lines["watch"] = f"{recipe.output.watch}: the weights that are kept" if recipe.output.watch else ""
    return {name: text for name, text in lines.items() if text}
