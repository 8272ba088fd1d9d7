"""Fields of recipes: each is explained in the docstring of its part, and the help of a recipe has each once."""

import re
from typing import Literal, get_args, get_origin

import pytest

from qkv.scripts.cli import main
from qkv.scripts.recipes.fields.help import recipe_help
from qkv.scripts.recipes.fields.keys import GROUPS, PARTS, explained, flat, recipe_fields
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.recipes.schema import Recipe


@pytest.mark.parametrize("key", recipe_fields())
def test_every_field_and_each_of_its_words_are_explained(key: str) -> None:
    field = recipe_fields()[key]
    assert field.meaning.endswith(".")
    words = get_args(field.kind) if get_origin(field.kind) is Literal else ()
    assert [word for word in words if word not in field.meaning + field.part.__doc__] == []


@pytest.mark.parametrize("part", [Recipe, *PARTS.values(), *GROUPS.values()])
def test_docstrings_explain_fields_alone(part: type) -> None:
    known = {key.rpartition(".")[2] for key, field in recipe_fields().items() if field.part is part}
    assert explained(part.__doc__).keys() == known


@pytest.mark.parametrize("name", names())
def test_the_help_has_every_field_with_its_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    recipe = load(name)
    text = recipe_help(recipe, f"qkv train {name}")
    assert max(map(len, text.splitlines())) <= 80
    keys = re.findall(r"^  ([\w.]+)=", text, re.MULTILINE)
    assert len(keys) == len(set(keys))
    config = {f"model.{key}" for key in flat(recipe)["model"]}
    assert {key for key in keys if not key.startswith("model.")} == recipe_fields().keys() - {
        "model", *GROUPS
    }  # fmt: skip
    assert {".".join(key.split(".")[:2]) for key in keys if key.startswith("model.")} == config
    assert re.search(rf"^  learning_rate={recipe.optimization.learning_rate}\s", text, re.MULTILINE)


def test_fields_of_parts_are_explained_by_the_configs_of_the_parts() -> None:
    text = " ".join(recipe_help(load("shapes-captions"), "qkv train shapes-captions").split())
    assert "model.vision_config.patch_size=4 Side of a patch in pixels" in text
    assert "model.hidden_size=64 Width of the hidden states." in text


def test_the_help_of_a_command_with_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: qkv train digits [key=value ...]\n")
    assert main(["train", "digit", "--help"]) == 1
    assert "'digits'" in capsys.readouterr().err
