"""Every head has inputs, of the sizes that configs and papers say."""

import pytest

import tables
from qkv import modeling
from qkv.scripts.planning.inputs import HEADS, head_of
from qkv.scripts.planning.planned_model import find
from qkv.scripts.training.run import HEADLESS

SIZES: dict[str, dict[str, int]] = tables.beside(__file__)


def test_every_head_that_learns_has_inputs() -> None:
    learners = {name for name in modeling.__all__ if "For" in name or name in HEADLESS}
    assert {head_of(name) for name in learners} == set(HEADS)


@pytest.mark.parametrize("words", SIZES)
def test_examples_are_as_large_as_configs_and_data_say(words: str) -> None:
    name, *changes = words.split()
    assert find(name, changes, None).sizes == SIZES[words]


def test_a_text_may_be_longer_where_no_table_of_positions_ends() -> None:
    assert find("t5_small", [], 2048).sizes == {"tokens": 2048}
    with pytest.raises(ValueError, match="--length=449 is more than max_position_embeddings=448; change one of them"):
        find("whisper_tiny", [], 449)
