"""A model is found by its name, with the head that its paper trains and examples of the sizes of configs and papers."""

import pytest

import tables
from errors import raises_sentence
from qkv import modeling
from qkv.scripts.common.heads import HEADS
from qkv.scripts.planning.inputs import INPUTS, SHAPES
from qkv.scripts.planning.planned_model import TRAINED, find, trained_head

SIZES: dict[str, dict[str, int]] = tables.beside(__file__, "test_inputs.yaml")
HEADS_OF_PRESETS: dict[str, str] = tables.beside(__file__)


@pytest.mark.parametrize("name", HEADS_OF_PRESETS)
def test_a_preset_has_the_head_of_its_paper(name: str) -> None:
    assert find(name, [], None).model_class.__name__.endswith(HEADS_OF_PRESETS[name])


def test_every_trained_head_has_inputs() -> None:
    heads = {trained_head(name).ending for name in TRAINED}
    assert heads == {head.ending for head in HEADS} - {"Model", "TextEncoder"} and set(TRAINED) <= set(modeling.__all__)
    assert {head.inputs for head in HEADS} == INPUTS.keys()
    assert {kind for head in HEADS for kind in head.targets.values()} == SHAPES.keys()


@pytest.mark.parametrize("words", SIZES)
def test_examples_have_the_sizes_of_configs_and_data(words: str) -> None:
    name, *changes = words.split()
    assert find(name, changes, None).sizes == SIZES[words]


def test_a_text_is_as_long_as_the_table_of_positions() -> None:
    assert find("t5_small", [], 2048).sizes == {"tokens": 2048}
    with raises_sentence("--length=449", "max_position_embeddings=448"):
        find("whisper_tiny", [], 449)
