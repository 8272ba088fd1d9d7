"""Columns of texts and labels: values that are none are said. `test_registry.py` reads whole tables."""

from typing import Any

import pytest

from qkv.scripts.data.pieces import InvalidRecord
from qkv.scripts.data.text_columns import check_class


@pytest.mark.parametrize("value", [None, " ", -1, float("nan")])
def test_a_missing_label_is_said(value: Any) -> None:
    with pytest.raises(InvalidRecord, match="missing"):
        check_class(value)


def test_an_infinite_number_is_no_label() -> None:
    with pytest.raises(InvalidRecord, match="inf is no finite number"):
        check_class(float("inf"))
    assert [check_class(value) for value in ("a", 0, 2.5)] == ["a", 0, 2.5]
