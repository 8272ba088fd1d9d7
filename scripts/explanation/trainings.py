"""Explain what a training is made of: commands, recipes, their fields and words, tasks, data, metrics and devices."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from qkv.scripts.common.source_code import PACKAGE, assigned, definitions, docstring, modules, rows, table
from qkv.scripts.common.words import words_of_class
from qkv.scripts.explanation.entries import Entry, all_recipes, prose, source
from qkv.scripts.explanation.examples import line_of_recipe
from qkv.scripts.planning.devices import DEVICES
from qkv.scripts.recipes.cards import read_card
from qkv.scripts.recipes.fields.aliases import ANSWERS, NAMES
from qkv.scripts.recipes.fields.help import spelled
from qkv.scripts.recipes.fields.recipe_fields import RecipeField, recipe_fields
from qkv.scripts.recipes.loading import FOLDER

TASKS = "scripts/tasks/*.py"
EXAMPLE_DATA = "scripts/example_data/*.py"


def explain_recipes() -> Iterator[Entry]:
    """Explain each recipe by its title and the comment at the head of its file."""
    for name, recipe in all_recipes().items():
        text = head_comment((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        facts = {"data": recipe.data.source, "architecture": recipe.model.architecture}
        yield Entry((name,), "recipe", f"{recipe.title}.\n\n{text}", "", f"qkv train {name}", facts)


def head_comment(text: str) -> str:
    """Return the comment at the head of a YAML file."""
    lines = text.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").strip() for line in lines[:end])


def explain_fields() -> Iterator[Entry]:
    """Explain each field of a recipe, and each word of one."""
    for key, field in recipe_fields().items():
        facts = {"takes": field.takes, "default": spelled_default(field), "other names": ", ".join(other_names(key))}
        kind = f"field of a recipe ({field.part.__name__.lower()})"
        names = tuple(dict.fromkeys((key, key.rpartition(".")[2])))
        yield Entry(names, kind, field.meaning, source(field.meaning), line_of_recipe(field), facts)
        for word in field.words:
            text = docstring(definitions("scripts/training/schedule.py").get(word)) or field.meaning
            kind = f"word of {key}, whose default is {field.default}"
            yield Entry((word,), kind, prose(text), source(text), line_of_recipe(field, word))


def spelled_default(field: RecipeField) -> str:
    """Return the default of a field; nothing where every recipe says it, and of a group of fields."""
    plain = field.default is None or isinstance(field.default, str | int | float)
    return spelled(field.default) if plain and not field.required else ""


def other_names(key: str) -> list[str]:
    """Return the other names of a field."""
    return [name for fields, names in NAMES.items() if key in fields.split() for name in names.split()]


def explain_answers() -> Iterator[Entry]:
    """Explain each name that is no field by what to type instead."""
    for name, answer in ANSWERS.items():
        yield Entry((name,), "not a field of a recipe", f"{answer[0].upper()}{answer[1:]}.")


def explain_tasks() -> Iterator[Entry]:
    """Explain each task, by its name, that of its pipeline, and the end of its architectures."""
    (heads,) = (value for name, value in assigned("scripts/tasks/registry.py").items() if name == "HEADS")
    for head in heads.elts if isinstance(heads, ast.Tuple) else ():
        assert isinstance(head, ast.Call)
        ending, name = ast.literal_eval(head.args[0]), ast.unparse(head.args[2])
        recipes = [key for key, recipe in all_recipes().items() if recipe.model.architecture.endswith(ending)]
        words = words_of_class(ending.removeprefix("For").removesuffix("Model")).lower().replace(" ", "-")
        names = tuple(dict.fromkeys((words, *pipelines(name), name, ending)))
        text = docstring(definitions(TASKS)[name])
        line = f"qkv train {recipes[0]}" if recipes else "qkv recipes"
        facts = {"architectures": f"those that end in {ending}", "recipes": ", ".join(recipes)}
        yield Entry(names, "task", prose(text), source(text), line, facts)


def pipelines(task: str) -> list[str]:
    """Return the names of pipelines for the tasks in the module of this one."""
    module = next(module for module in modules(TASKS).values() if task in (getattr(n, "name", "") for n in module.body))
    kinds = (one for node in ast.walk(module) if isinstance(node, ast.ClassDef) for one in node.body)
    named = (one for one in kinds if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "kind")
    return list(dict.fromkeys(ast.literal_eval(one.value) for one in named))


def explain_data() -> Iterator[Entry]:
    """Explain each set of example data."""
    data = assigned("scripts/tasks/registry.py")["EXAMPLE_DATA"]
    for makers in data.values if isinstance(data, ast.Dict) else ():
        for name, maker in rows(makers).items():
            text = docstring(definitions(EXAMPLE_DATA)[ast.unparse(maker).rpartition(".")[2]])
            recipes = [key for key, recipe in all_recipes().items() if recipe.data.source == name]
            line = f"qkv train {recipes[0]}" if recipes else line_in_comment(f"data={name}")
            yield Entry((name,), "example data", prose(text), source(text), line, {"recipes": ", ".join(recipes)})


def line_in_comment(word: str) -> str:
    """Return a line that trains a recipe as the comment at the head of its file says, with this word."""
    for name in all_recipes():
        text = head_comment((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        for words in re.findall(r"`([^`]*)`", text):
            if word in words.split():
                return f"qkv train {name} {words}"
    return f"qkv train RECIPE {word}"


def explain_metrics() -> Iterator[Entry]:
    """Explain each metric by the function that computes it."""
    for name, function in table("scripts/tasks/metrics.py", "METRICS").items():
        text = docstring(definitions("scripts/tasks/metrics.py").get(ast.unparse(function)))
        measured = [recipe for recipe in all_recipes() if name in measured_metrics(recipe)]
        line = f"qkv train {measured[0]}" if measured else "qkv recipes"
        yield Entry((name,), "metric", prose(text), source(text), line, {"recipes": ", ".join(measured)})


@cache
def measured_metrics(recipe: str) -> list[str]:
    """Return the names of what a recipe's card has measured on the test split."""
    card = read_card(recipe)
    return list(card["metrics"]["test"]) if card else []


def explain_launchers() -> Iterator[Entry]:
    """Explain each config file of `accelerate launch`."""
    for path in sorted((PACKAGE / "scripts/accelerate").glob("*.yaml")):
        line = f"accelerate launch --config_file scripts/accelerate/{path.name} scripts/train.py digits"
        text = head_comment(path.read_text(encoding="utf-8"))
        yield Entry((path.stem,), "config file of accelerate launch", text, example=line)


def explain_devices() -> Iterator[Entry]:
    """Explain each device that a training is planned for."""
    for word, device in DEVICES.items():
        text = f"{device.name}: {device.bf16:.3g} FLOP/s in bf16, {device.memory / 1e9:.0f} GB of memory."
        yield Entry((word,), "device of qkv plan", text, example=f"qkv plan gpt2-124m --device {word}")
