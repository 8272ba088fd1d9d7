"""The boxes of a figure say what a config says."""

import pytest

from qkv import modeling
from qkv.configuration import presets
from qkv.scripts.architecture.towers import Box, Layers, Tower, towers_of
from qkv.scripts.planning.planned_model import trained_class


def towers(name: str, **fields: object) -> list[Tower]:
    config = getattr(presets, name)(**fields)
    return towers_of(config, trained_class(config))


def layers(tower: Tower) -> Layers:
    (own,) = [item for item in tower.items if isinstance(item, Layers)]
    return own


def texts(tower: Tower) -> list[str]:
    """All that is written into the boxes of a tower, from its input up."""
    told = []
    for item in tower.items:
        boxes = [item] if isinstance(item, Box) else [box for branch in item.branches for box in branch]
        told += [f"{box.text}: {box.detail}".removesuffix(": ") for box in boxes]
    return told


def test_a_decoder_is_read_from_its_tokens_to_its_head() -> None:
    (tower,) = towers("gpt2")
    assert texts(tower) == [
        "tokens: of 50,257",
        "token embedding: 50,257 x 768 + 1,024 learned positions",
        "LayerNorm",
        "causal self-attention: 12 heads of 64",
        "LayerNorm",
        "feed-forward: 768 → 3072 → 768, gelu_new",
        "LayerNorm",
        "causal LM: 50,257 tokens, tied to the embedding",
    ]
    assert layers(tower).times == 12 and layers(tower).residual and layers(tower).after is None


def test_norms_stand_where_the_config_has_them() -> None:
    (first,), (after,) = towers("bert_base", norm_first=True), towers("bert_base")
    assert [[box.role for box in branch] for branch in layers(first).branches] == [
        ["norm", "attention"],
        ["norm", "mlp"],
    ]
    assert [[box.role for box in branch] for branch in layers(after).branches] == [["attention"], ["mlp"]]
    assert layers(after).after == Box("norm", "LayerNorm") and layers(first).after is None
    roles = [[item.role for item in tower.items if isinstance(item, Box)] for tower in (first, after)]
    assert roles[0].count("norm") - roles[1].count("norm") == 1, "the final norm is that of pre-norm"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"position": "rope"}, "self-attention: 12 heads of 64, rope"),
        ({"position": "alibi"}, "self-attention: 12 heads of 64, alibi"),
        ({"num_key_value_heads": 3}, "self-attention: 12 heads (3 of keys) of 64"),
        ({"pattern": "sliding", "sliding_window": 9}, "self-attention: 12 heads of 64, sliding 9"),
        ({"pattern": ["sliding", *["full"] * 11], "sliding_window": 9}, "12 heads of 64, sliding 9 x1 / full x11"),
        ({"kernel": "linear", "attention_dropout": 0.0}, "linear attention: 12 heads of 64"),
        ({"feed_forward": "glu"}, "gated feed-forward: 768 → 3072 → 768, gelu"),
        ({"norm": "rms"}, "RMSNorm"),
        ({"position": "none"}, "token embedding: 30,522 x 768"),
        ({"position": "sinusoidal"}, "token embedding: 30,522 x 768 + sinusoidal positions"),
    ],
)
def test_a_word_of_the_config_is_in_a_box(fields: dict, text: str) -> None:
    (tower,) = towers("bert_base", **fields)
    assert any(text in told for told in texts(tower)), texts(tower)


def test_branches_in_parallel_say_so() -> None:
    (tower,) = towers("gpt2", parallel_residual=True)
    assert "feed-forward of the layer's input: 768 → 3072 → 768, gelu_new" in texts(tower)


def test_a_decoder_reads_its_encoder_in_each_layer() -> None:
    encoder, decoder = towers("t5_small")
    memories = [box.text for branch in layers(decoder).branches for box in branch if box.memory]
    assert memories == ["cross-attention"] and not any(box.memory for b in layers(encoder).branches for box in b)
    assert (encoder.name, decoder.name) == ("encoder", "decoder")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vit_base_16", ["image: 224 x 224 pixels", "patches of 16 x 16: projected to 768 + learned positions"]),
        ("clip_vit_b32", ["cosine similarity: of projections to 512"]),
        ("detr_r50", ["object queries: 100, learned", "object detection: 91 classes and boxes"]),
        (
            "whisper_tiny",
            ["sound: log-mel spectrogram of 80 bins", "speech seq2seq: 51,865 tokens, tied to the embedding"],
        ),
        (
            "rnnsearch_50",
            ["GRU: both ways, 1000 units", "additive attention: from the last state", "maxout readout: of width 500"],
        ),
    ],
)
def test_every_family_has_its_boxes(name: str, told: list[str]) -> None:
    shown = [text for tower in towers(name) for text in texts(tower)]
    assert [text for text in told if text not in shown] == []


def test_a_recurrent_decoder_without_attention_reads_the_last_states() -> None:
    _, decoder = towers("rnnsearch_50", attention="none", readout_size=None, readout="none", num_hidden_layers=3)
    first, others = [item for item in decoder.items if isinstance(item, Layers)]
    assert first.branches[0][0].memory and (others.times, first.residual) == (2, False)


def test_every_class_has_towers() -> None:
    for name in modeling.__all__:
        kind = getattr(modeling, name)
        if "For" in name and hasattr(kind, "config_class"):
            assert towers_of(kind.config_class(), kind)[-1].items[-1].role == "head", name
