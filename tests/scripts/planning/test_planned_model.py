"""What is planned is found by its name, with the head that its paper trains."""

import pytest

from qkv.scripts.common.resources import table
from qkv.scripts.planning.planned_model import find

HEADS: dict[str, str] = table(__file__)


@pytest.mark.parametrize("name", HEADS)
def test_a_preset_has_the_head_of_its_paper(name: str) -> None:
    assert find(name, [], None).head == HEADS[name]
