"""What is planned is found by its name, with the head that its paper trains."""

import pytest

import tables
from qkv.scripts.planning.planned_model import find

HEADS: dict[str, str] = tables.beside(__file__)


@pytest.mark.parametrize("name", HEADS)
def test_a_preset_has_the_head_of_its_paper(name: str) -> None:
    assert find(name, [], None).head == HEADS[name]
