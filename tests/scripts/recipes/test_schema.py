"""Recipes: what ships loads, what is typed is converted, what is wrong is named in one sentence."""

from pathlib import Path

import pytest

import tables
from qkv.scripts.recipes.fields.keys import flat, recipe_fields
from qkv.scripts.recipes.loading import changed, is_data, load, names
from qkv.scripts.recipes.schema import Recipe
from recipes import recipe_of


@pytest.mark.parametrize("name", names())
def test_every_recipe_loads(name: str) -> None:
    recipe = load(name)
    assert isinstance(recipe, Recipe) and recipe.name == name and recipe.title and recipe.limits


def test_overrides_are_converted_to_the_types_of_fields_groups_and_the_model() -> None:
    words = ["seed=7", "learning_rate=1", "batch_size=64.0", "out=null", "augment.degrees=0", "model.position=rope"]
    recipe = load("digits", words)
    assert (recipe.seed, recipe.output.folder, load("digits", ["out=3"]).output.folder) == (7, None, "3")
    values = (recipe.optimization.learning_rate, recipe.optimization.batch_size)
    assert values == (1.0, 64) and [type(value) for value in values] == [float, int]
    assert recipe.data.augment.degrees == 0.0 and recipe.data.augment.shift == load("digits").data.augment.shift
    assert recipe.model.config["position"] == "rope" and recipe.model.config["hidden_size"] == 64


def test_a_recipe_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: Mine\ndata: digits\narchitecture: QkvImageEncoderForImageClassification\n")
    assert load(str(path)) == recipe_of(
        name="mine", title="Mine", data="digits", architecture="QkvImageEncoderForImageClassification"
    )


@pytest.mark.parametrize(("word", "message"), tables.beside(__file__).items())
def test_a_wrong_word_is_refused_in_one_sentence(word: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        load("digits", [word])
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_recipe_is_the_tree_of_its_flat_values() -> None:
    recipe = load("digits", ["out=here", "schedule=linear"])
    keys = {key for key in recipe_fields() if "." not in key}
    assert flat(recipe).keys() == keys and changed(recipe, **flat(recipe)) == recipe
    assert (flat(recipe)["data"], flat(recipe)["out"], flat(recipe)["schedule"]) == ("digits", "here", "linear")


@pytest.mark.parametrize(
    ("text", "message"),
    [("title: Mine\n", "data, architecture"), ("", "mine.yaml"), ("seed: 1\nseed: 2\n", "'seed' twice"),
     ("null: 1\n", "'None'"), ("title: M\xfcller\n", "mine.yaml"), ("[" * 3000, "mine.yaml")],
)  # fmt: skip
def test_a_recipe_that_is_none_or_says_too_little_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        load(str(path))


@pytest.mark.parametrize("name", names())
def test_a_recipe_tells_its_story_of_its_own_data_alone(name: str) -> None:
    same = load(name, [f"data={load(name).data.source}"])
    other = load(name, ["data=mine.csv"])
    assert same == load(name)
    assert (other.title, other.limits, other.prompt) == ("", "", "") and other.model == same.model
    typed = load(name, ["title=Mine", "data=mine.csv", "limits=none", "prompt=a b"])
    assert (typed.title, typed.limits, typed.prompt) == ("Mine", "none", "a b")


@pytest.mark.parametrize("text", ["Soup: a #1 guide", "no", "5", "[a, b]", "{mask} of a: b", "", "a = b", "it's"])
def test_sentences_stay_as_they_are_typed(text: str) -> None:
    recipe = load("digits", [f"card.title={text}", f"card.language={text}", f"prompt={text}"])
    assert recipe.card.title == recipe.card.language == recipe.prompt == text
    assert load("digits", ["card.title='quoted: so'"]).card.title == "quoted: so"


@pytest.mark.parametrize(
    ("name", "data"),
    [("digits", False), ("mine.yaml", False), ("here/x.csv", False), ("./x", False), ("~/x", False), ("zzz", False),
     ("here", True), ("author/name", True), ("author/name.v2:config@main", True)],
)  # fmt: skip
def test_paths_are_told_from_names_on_the_hub(
    name: str, data: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    assert is_data(name) is data
