"""Fields of recipes as people read them: every one is explained, in a sentence, with its type and default."""

import pytest

from qkv.scripts.recipes.fields.recipe_fields import explained, recipe_fields
from qkv.scripts.recipes.keys import GROUPS, PARTS, known_types
from qkv.scripts.recipes.schema import Recipe


@pytest.mark.parametrize("key", recipe_fields())
def test_every_field_is_explained(key: str) -> None:
    field = recipe_fields()[key]
    assert field.meaning[0].isupper() | (field.meaning[0] == "`") and field.meaning.endswith(".")
    assert field.type_name and not (field.required and field.default is None)


@pytest.mark.parametrize("part", [Recipe, *PARTS.values(), *GROUPS.values()])
def test_what_is_explained_is_a_field(part: type) -> None:
    known = {key.rpartition(".")[2] for key, field in recipe_fields().items() if field.part is part}
    assert explained(part.__doc__).keys() == known


def test_the_fields_are_those_of_recipes() -> None:
    assert {key for key in recipe_fields() if "." not in key} == known_types().keys()


def test_words_of_a_field_are_named_where_it_is_explained() -> None:
    for key, field in recipe_fields().items():
        explained_words = field.meaning + field.part.__doc__
        missing = [word for word in field.words if word not in explained_words]
        assert not missing, (key, missing)
