"""Example data are the same bytes every time, on which the numbers of the cards rest."""

import json
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from qkv.scripts.data.examples import Columns
from qkv.scripts.tasks.registry import EXAMPLE_DATA
from recipes import recipe_of

MADE = {name: make for makers in EXAMPLE_DATA.values() for name, make in makers.items()}
SAME = {
    "digits": "7fe42b4217a8d3fd", "shapes-captions": "78024d100d063636", "shapes-detect": "3c79277747b4e468",
    "digit-drawings": "e53143e6a03fb95b", "tunes": "1c979aabedb020ff", "associative-recall": "90fc9ad5303984ff",
    "rna-folds": "a7f15512a1f86233", "copy": "9acf373d9c14325c", "reverse": "453886329d3b5d5b",
    "numbers": "658cdbb72b52e73f",
}  # fmt: skip
# The fields of data sets that are hashed.
FIELDS = "texts labels targets captions train splits tables".split()


def plain(value: Any) -> Any:
    """A value of a data set as JSON."""
    if isinstance(value, Columns):
        return {name: sha256(np.ascontiguousarray(own).tobytes()).hexdigest() for name, own in value.columns.items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if hasattr(value, "features"):
        images = [sha256(each["bytes"]).hexdigest() for each in value["image"]]
        return [images, value["objects"][:]]
    return value


@pytest.mark.costly(6)
@pytest.mark.parametrize("name", SAME)
def test_the_same_bytes_come_every_time(name: str) -> None:
    data: Any = MADE[name](recipe_of(text=dict(made=40, length=66, symbols=4)))
    data = getattr(data, "corpus", data)
    held = {field: plain(getattr(data, field)) for field in FIELDS if hasattr(data, field)}
    assert held and sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16] == SAME[name]
