"""Recipes of tests."""

from typing import Any

from qkv.scripts.recipes.loading import build
from qkv.scripts.recipes.schema import Recipe


def recipe_of(**values: Any) -> Recipe:
    """A recipe of these values under their names in files, and otherwise of defaults."""
    return build({"name": "tiny", "title": "", "data": "", "architecture": "", **values})
