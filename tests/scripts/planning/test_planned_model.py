"""A model is found by its name, with the head and size of its paper, and examples of the sizes of configs and papers."""

import json
from pathlib import Path

import pytest

import qkv
import tables
from errors import raises_sentence
from qkv import modeling
from qkv.scripts.common.heads import HEADS, head_of
from qkv.scripts.planning.inputs import INPUTS, SHAPES
from qkv.scripts.planning.planned_model import TRAINED, find
from qkv.scripts.planning.simulate import count_parameters

SMALL = "hidden_size=32 num_hidden_layers=2 num_attention_heads=4 vocab_size=101 max_position_embeddings=32".split()
PUBLISHED = {"gpt2": 124_439_808, "whisper_tiny": 37_760_640, "clip_vit_b32": 151_277_313, "detr_r50": 41_524_768}
CARDS = sorted((Path(__file__).parents[3] / "model_cards").glob("*/card.md"))
SIZES: dict[str, dict[str, int]] = tables.beside(__file__, "test_inputs.yaml")
HEADS_OF_PRESETS: dict[str, str] = tables.beside(__file__)


@pytest.mark.parametrize("name", HEADS_OF_PRESETS)
def test_a_preset_has_the_head_of_its_paper(name: str) -> None:
    assert find(name, [], None).model_class.__name__.endswith(HEADS_OF_PRESETS[name])


def test_every_trained_head_has_inputs() -> None:
    heads = {head_of(name).ending for name in TRAINED}
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


def test_parameters_are_those_of_the_model() -> None:
    subject = find("gpt2", SMALL, None)
    count = qkv.QkvDecoderForCausalLM(subject.config).num_parameters()
    assert count_parameters(subject) == {"total": count, "embedding": (101 + 32) * 32, "trained": count}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_model(name: str) -> None:
    assert count_parameters(find(name, [], None))["total"] == PUBLISHED[name]


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.parent.name)
def test_a_recipe_has_the_parameters_of_its_card(card: Path) -> None:
    """Vocabularies and classes are known without reading the data."""
    record = json.loads(card.with_name("record.json").read_text())
    assert count_parameters(find(card.parent.name, [], None))["total"] == record["parameters"]
