"""Recipes: what ships loads, what is typed is converted, what is wrong is named in one sentence."""

from pathlib import Path

import pytest

from qkv.scripts.recipes.loading import changed, load, names
from qkv.scripts.recipes.schema import Recipe, flat, known_types
from recipes import recipe_of


@pytest.mark.parametrize("name", names())
def test_every_recipe_loads(name: str) -> None:
    recipe = load(name)
    assert isinstance(recipe, Recipe) and recipe.name == name and recipe.title and recipe.limits


def test_overrides_change_fields_groups_and_the_model() -> None:
    words = [
        "seed=7",
        "learning_rate=1e-3",
        "out=null",
        "augment.degrees=0",
        "model.position=rope",
        "model.norm_eps=1e-6",
    ]
    recipe = load("digits", words)
    assert (recipe.seed, recipe.optimization.learning_rate, recipe.output.folder) == (7, 1e-3, None)
    assert recipe.data.augment.degrees == 0.0 and recipe.data.augment.shift == load("digits").data.augment.shift
    assert recipe.model.config["position"] == "rope" and recipe.model.config["hidden_size"] == 64


def test_types_are_those_of_the_fields() -> None:
    recipe = load("digits", ["learning_rate=1", "batch_size=64.0", "out=3"])
    assert [
        type(value)
        for value in (recipe.optimization.learning_rate, recipe.optimization.batch_size, recipe.output.folder)
    ] == [float, int, str]


def test_a_recipe_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: Mine\ndata: digits\narchitecture: QkvImageEncoderForImageClassification\n")
    assert load(str(path)) == recipe_of(
        name="mine", title="Mine", data="digits", architecture="QkvImageEncoderForImageClassification"
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("augment.degree=3", "unknown key 'augment.degree'; did you mean 'augment.degrees'?"),
        ("zzz=1", "unknown key 'zzz'; the keys are "),
        ("seed", "'seed' is not key=value; write for example seed=1"),
        ("seed=1.5", "seed=1.5 is not a whole number"),
        ("seed=true", "seed=True is not a whole number"),
        ("seed=.inf", "seed=inf is not a whole number"),
        ("seed=[1", "seed=[1 is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("seed=-1", "seed=-1 must be 0 or more"),
        ("batch_size=many", "batch_size='many' is not a whole number"),
        ("learning_rate=0", "learning_rate=0.0 must be above 0"),
        ("learning_rate=fast", "learning_rate='fast' is not a number"),
        ("augment.scale=-1", "augment.scale=-1.0 must be 0 or more"),
        ("augment=3", "augment=3 is not a group of keys"),
        ("title.x=3", "'title.x' is not a recipe key: 'title' holds a single value"),
        ("holdout=1", "holdout=1.0 leaves nothing to train on; give a share below 1, such as 0.2"),
        ("schedule=cosin", "schedule='cosin' is not allowed; did you mean 'cosine'?"),
        ("resume=yes", "resume=True is not allowed; the words are auto, never"),
        ("save_every=0", "save_every=0 must be at least 1"),
        ("keep=0", "keep=0 must be at least 1"),
        ("precision=int8", "precision='int8' is not allowed; the words are fp32, bf16"),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(word: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        load("digits", [word])
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_every_part_of_the_tree_is_written_under_names_of_its_own() -> None:
    recipe = load("digits", ["out=here", "model_source=stock"])
    values = flat(recipe)
    assert values.keys() == known_types().keys() and changed(recipe, **values) == recipe
    assert (values["data"], values["schedule"], values["out"], values["model_source"]) == (
        recipe.data.source, recipe.schedule.name, recipe.output.folder, recipe.model.source,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [("title: Mine\n", "the recipe says nothing about data, architecture"), ("", "is not a recipe: it holds no keys")],
)
def test_a_recipe_that_says_too_little_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(str(path))
