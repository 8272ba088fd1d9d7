"""Parameters and FLOPs by closed formulas, by published models and by committed cards."""

import json
from pathlib import Path

import pytest

import qkv
from qkv.scripts.planning.planned_model import find
from qkv.scripts.planning.simulate import count_flops, count_parameters

SMALL = "hidden_size=32 num_hidden_layers=2 num_attention_heads=4 vocab_size=101 max_position_embeddings=32".split()
PUBLISHED = {"gpt2": 124_439_808, "whisper_tiny": 37_760_640, "clip_vit_b32": 151_277_313, "detr_r50": 41_524_768}
CARDS = sorted((Path(__file__).parents[3] / "model_cards").glob("*/card.md"))


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


def test_flops_of_gpt2_follow_the_formula() -> None:
    """Forward 2 N + 4 L T D per token, N without the tables but with the head; flash attention's backward 2.5 times."""
    found = count_flops(find("gpt2", ["num_hidden_layers=3"], 512))
    matrices, attention = 3 * 12 * 768**2 + 50257 * 768, 4 * 3 * 512 * 768
    assert found["forward"] == 2 * matrices + attention
    assert found["model"] == 6 * matrices + 3 * attention
    assert found["training"] == 6 * matrices + 3.5 * attention


def test_flops_of_a_vision_transformer_follow_the_formula() -> None:
    found = count_flops(find("vit_base_16", ["num_hidden_layers=3"], None))
    # The last layer has keys and values of all tokens, everything else of the class token alone.
    layers = 197 * 2 * (2 * 12 + 2) * 768**2 + 2 * 10 * 768**2
    attention = 4 * (2 * 197**2 + 197) * 768
    patches, head = 2 * 196 * 768**2, 2 * 768 * 1000
    assert found["forward"] == layers + attention + patches + head
    # The first layer's input needs no gradient: nothing is computed for pixels.
    assert found["training"] == 3 * (layers + head) + 3.5 * attention + 2 * patches


def test_flops_of_clip_are_those_of_both_towers_and_of_the_cosines() -> None:
    def tower(layers: int, tokens: int, width: int) -> int:
        return layers * (tokens * 2 * 12 * width**2 + 4 * tokens**2 * width) + 2 * width * 512

    patches, cosines = 2 * 49 * 3 * 32**2 * 768, 3 * 2 * 512
    found = count_flops(
        find("clip_vit_b32", ["text_config={num_hidden_layers: 2}", "vision_config={num_hidden_layers: 3}"], None)
    )
    assert found["forward"] == tower(2, 77, 512) + tower(3, 50, 768) + patches + cosines


def test_flops_of_an_lstm_follow_the_formula() -> None:
    """Two directions that read, one cell that writes, and what the head reads of state, embedding and context."""
    words = ["cell=lstm", "attention=none", "hidden_size=32", "embedding_size=16", "vocab_size=101"]
    reader, writer = 2 * 4 * 32 * (16 + 32), 4 * 32 * (16 + 64 + 32)
    readout, bridge = (32 + 16 + 64 + 101) * 16, 32 * 2 * 32
    found = count_flops(find("rnnsearch_50", [*words, "readout=tanh", "readout_size=16"], 4))
    assert found["forward"] == 2 * (reader + writer + readout + bridge / 4)
    # The first state of a reader is zero, and needs no gradient.
    assert found["training"] == 3 * found["forward"] - 2 * (2 * 4 * 32 * 32) / 4
