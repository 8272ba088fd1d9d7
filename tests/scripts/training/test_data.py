"""Data sets are found by name."""

import pytest

from qkv.scripts.training import data, recipe


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no data set 'digit'; did you mean 'digits'?"):
        data.load(recipe.load("digits", ["data=digit"]))
