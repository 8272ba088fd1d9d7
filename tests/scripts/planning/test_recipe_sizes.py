"""What is known of data before they are read is what they say: models have the parameters that their cards have."""

import json
from pathlib import Path

import pytest

from qkv.scripts.planning.planned_model import find
from qkv.scripts.planning.predict import count_parameters

CARDS = sorted((Path(__file__).parents[3] / "model_cards").glob("*/card.md"))


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.parent.name)
def test_a_recipe_has_the_parameters_of_its_card(card: Path) -> None:
    record = json.loads(card.with_name("record.json").read_text())
    assert count_parameters(find(card.parent.name, [], None))["total"] == record["parameters"]
