"""Load recipes from YAML files and `key=value` words, each value checked against the schema."""

import json
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml

from qkv.scripts.common.environment import is_local
from qkv.scripts.common.files import RECORD
from qkv.scripts.common.heads import HEADS, head_for
from qkv.scripts.common.words import check_known, did_you_mean, nearest
from qkv.scripts.recipes.fields.aliases import resolve
from qkv.scripts.recipes.fields.keys import GROUPS, flat, recipe_fields, tree, types_of
from qkv.scripts.recipes.schema import Card, Fields, Recipe

FOLDER = Path(__file__).parent
# The recipes that come with qkv.
FILES = {path.stem: path for folder in (FOLDER, FOLDER / "full_size") for path in folder.glob("*.yaml")}
CARDS = Path(__file__).parents[2] / "model_cards"
# Fields about the data of a recipe, left out with other data.
STORY = ("title", "limits", "prompt")
TEXTS, QUOTES = {*STORY, *(f"card.{name}" for name in types_of(Card))}, ("'", '"')
NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


def names() -> list[str]:
    """Return the names of the recipes that come with qkv."""
    return sorted(FILES)


def read_card(name: str) -> dict[str, Any] | None:
    """Return the record of a recipe's committed card, if any."""
    path = CARDS / name / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def is_data(name: str) -> bool:
    """Tell whether a name means data to infer a recipe from: a file or folder here, or author/name on the Hub."""
    if name in names() or name.endswith((".yaml", ".yml")):
        return False
    return is_local(name) or ("/" in name and not is_path(name))


def is_path(name: str) -> bool:
    """Tell whether an unknown name looks like a file: ./x, ~/x, or x.csv in a folder here."""
    return name.startswith((".", "/", "~")) or bool(Path(name).suffix and Path(name).parent.exists())


def load(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe by its name or YAML file, and apply `key=value` words; ValueError for a mistake."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FILES.get(name, FOLDER / f"{name}.yaml")
    if not path.exists():
        raise ValueError(missing(name))
    values = parse(path.read_bytes(), str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not a recipe: it holds no keys")
    own, typed = values.get("data"), set()
    overrides, task = [word for word in overrides if not word.startswith("task=")], task_word(overrides)
    if task is not None:
        assign_task(values, task)
    for key, value in pairs(resolve(overrides)):
        assign(values, key, value)
        typed.add(key)
    if values.get("data") != own:
        values |= dict.fromkeys(set(STORY) - typed, "")
    return build({"name": path.stem, **values})


def assign_task(values: Fields, task: str) -> None:
    """Set the fields that follow from the task of `task=`."""
    assign(values, "architecture", architecture_for(task, str(values.get("architecture", ""))))
    if kind := {"regression": "regression", "multi-label": "multi_label_classification"}.get(task):
        assign(values, "model.problem_type", kind)
    if task == "denoising" and not values.get("text", {}).get("corruption"):
        assign(values, "text.corruption", "spans")


def task_word(words: Sequence[str]) -> str | None:
    """Return the last task that `task=` names, if any; ValueError for an unknown one."""
    task = next((word.removeprefix("task=") for word in reversed(words) if word.startswith("task=")), None)
    return task if task is None or head_for(task) else None


def architecture_for(task: str, architecture: str) -> str:
    """Return the architecture of the same family for another task."""
    endings = [head.ending for head in HEADS if architecture.endswith(head.ending)]
    return architecture.removesuffix(endings[0] if endings else "") + head_for(task).ending


def missing(name: str) -> str:
    """Return the sentence about a recipe that does not exist."""
    if is_local(name):
        return f"{name!r} is data and no recipe; qkv train {shlex.quote(name)} learns from it"
    if not is_path(name):
        return f"there is no recipe {name!r}; {did_you_mean(name, names(), 'recipes')}"
    close = nearest(Path(name).name, [*names(), *(path.name for path in Path(name).parent.glob("*"))])
    return f"there is no file or recipe {name!r}; {f'did you mean {close!r}?' if close else 'qkv recipes lists them'}"


def pairs(words: Sequence[str], example: str = "seed=1") -> Iterator[tuple[str, Any]]:
    """Yield the keys and YAML values of `key=value` words; ValueError for other words."""
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ValueError(f"{word!r} is not key=value; write for example {example}")
        # Sentences are not parsed: their colons and hashes have a meaning in YAML.
        yield key, value if key in TEXTS and value[:1] not in QUOTES else parse(value, word)


def parse(text: str | bytes, where: str) -> Any:
    """Parse a YAML value; ValueError where it is none, or has a key twice."""
    try:
        check_keys(yaml.compose(text, yaml.SafeLoader), where)
        return yaml.load(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ValueError(f"{where} is not valid YAML: {reason}") from None


def check_keys(node: Any, where: str) -> None:
    """Raise ValueError for a duplicate key, which YAML would drop."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    keys = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{where} has the key {twice[0]!r} twice; remove one of them")
    for inner in chain(*pairs) if pairs else node.value if isinstance(node, yaml.SequenceNode) else []:
        check_keys(inner, where)


def assign(values: Fields, key: str, value: Any) -> None:
    """Set a dotted key in nested values."""
    *groups, last = key.split(".")
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise ValueError(f"{key!r} is not a recipe key: {group!r} holds a single value")
    values[last] = value


def build(values: Fields) -> Recipe:
    """Make a recipe of plain values; ValueError for an unknown key, a missing one, or a value that does not fit."""
    checked = converted(values, {key: field.kind for key, field in recipe_fields().items() if "." not in key})
    if missing := [key for key in ("title", "data", "architecture") if key not in values]:
        raise ValueError(f"the recipe says nothing about {', '.join(missing)}")
    return tree(checked)


def changed(recipe: Recipe, **values: Any) -> Recipe:
    """Return a recipe with other values; a group as a dict of all its values."""
    return build(flat(recipe) | values)


def converted(values: Fields, types: Fields, prefix: str = "") -> Fields:
    """Convert each value to the type of its key; ValueError for an unknown key."""
    for key in values:
        check_known(f"{prefix}{key}", [prefix + known for known in types])
    return {key: convert(prefix + key, value, types[key]) for key, value in values.items()}


def convert(key: str, value: Any, kind: Any) -> Any:
    """Convert a value to the type of its field; ValueError for another type."""
    if NoneType in get_args(kind):
        return None if value is None else convert(key, value, get_args(kind)[0])
    if value is None:
        raise ValueError(f"{key} is empty; give a value")
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{key}={value!r} is not allowed; {did_you_mean(str(value), get_args(kind), 'words')}")
        return value
    if get_origin(kind) is Annotated:
        number, (bound,) = convert_plain(key, value, kind.__origin__), kind.__metadata__
        bound.check(key, number)
        return number
    if kind in GROUPS.values():
        return kind(**converted(convert_plain(key, value, dict), types_of(kind), f"{key}."))
    return convert_plain(key, value, get_origin(kind) or kind)


def convert_plain(key: str, value: Any, kind: type) -> Any:
    """Convert a number, text or mapping; text that spells a number is one (YAML reads 1e-3 as text)."""
    if kind is str:
        return str(value)
    if kind is bool and isinstance(value, bool):
        return value
    try:
        if kind in (int, float) and not isinstance(value, bool) and float(value) == kind(value):
            return kind(value)
    except (TypeError, ValueError, OverflowError):
        pass
    if kind in (dict, list) and isinstance(value, kind):
        return [str(each) for each in value] if kind is list else value
    raise ValueError(f"{key}={value!r} is not {NUMBERS.get(kind, 'a group of keys')}")
