"""The help of a recipe: every field once, with the recipe's value, within the width of the terminal."""

import re

import pytest

from qkv.scripts.cli import main
from qkv.scripts.recipes.fields.config_fields import config_of, parts
from qkv.scripts.recipes.fields.help import recipe_help, spelled
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.keys import GROUPS, flat
from qkv.scripts.recipes.loading import load, names


@pytest.mark.parametrize("name", names())
def test_every_field_has_its_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    recipe = load(name)
    text = recipe_help(recipe, f"qkv train {name}")
    assert max(map(len, text.splitlines())) <= 80
    keys = re.findall(r"^  ([\w.]+)=", text, re.M)
    values = flat(recipe)
    own = parts(config_of(recipe.model.architecture))
    inner = [f"model.{part}.{key}" for part in own for key in values["model"].get(part, {})]
    config = [f"model.{key}" for key in values["model"] if key not in own] + inner
    config += [f"stock.{key}" for key in values["stock"]]
    plain = recipe_fields().keys() - {"model", "stock", *GROUPS}
    assert sorted([key for key in keys if not key.endswith("NAME")]) == sorted([*plain, *config])
    for key in ("max_steps", "learning_rate", "schedule", "batch_size"):
        assert re.search(rf"^  {key}={spelled(values[key])}\s", text, re.M)


def test_defaults_are_told_where_the_recipe_differs() -> None:
    text = " ".join(recipe_help(load("digits", ["max_steps=77"]), "qkv train digits").split())
    assert "max_steps=77 Length of the training. (whole number, optimizer steps; default 1000)" in text
    assert "keep=2 Newest checkpoints that stay. (whole number, checkpoints)" in text


def test_fields_of_the_config_are_explained_by_its_own_class() -> None:
    text = " ".join(recipe_help(load("digits"), "qkv train digits").split())
    assert "model.patch_size=2 Side of a patch in pixels" in text and "model.hidden_size=64 Width of the hidden" in text


def test_fields_of_parts_are_explained_by_the_classes_of_the_parts() -> None:
    text = " ".join(recipe_help(load("shapes-captions"), "qkv train shapes-captions").split())
    assert "model.vision_config.patch_size=4 Side of a patch in pixels" in text
    assert "model.projection_dim=64 Width of the shared space. (whole number; default 512)" in text
    assert "model.hidden_size=64 Width of the hidden states. (whole number)" in text


@pytest.mark.parametrize("command", ["train", "quickstart", "compare"])
def test_it_is_the_help_of_a_command_with_a_recipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "digits", "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: qkv {command} digits [key=value ...]\n")
    assert main([command, "digit", "--help"]) == 1
    assert "did you mean 'digits'?" in capsys.readouterr().err
