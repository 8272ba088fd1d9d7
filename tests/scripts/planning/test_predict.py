"""Plans: counts and FLOPs by closed formulas, strategies by what they are known to share."""

from functools import partial

import pytest

import qkv
from qkv.scripts.planning.collectives import Collective
from qkv.scripts.planning.devices import DEVICES
from qkv.scripts.planning.planned_model import PlannedModel, find
from qkv.scripts.planning.predict import Prediction, count_parameters, flops_per_unit, predict, predict_step
from qkv.scripts.planning.simulate import Setup, Step, simulate

SMALL = "hidden_size=32 num_hidden_layers=2 num_attention_heads=4 vocab_size=101 max_position_embeddings=32".split()


def small(name: str = "gpt2", *words: str) -> PlannedModel:
    return find(name, [*SMALL, *words], None)


def setup(strategy: str = "ddp", world_size: int = 4, **fields: object) -> Setup:
    return Setup(**{"batch": 2, "precision": "fp32", "fused": True, **fields}, world_size=world_size, strategy=strategy)


def step(model: PlannedModel, how: Setup) -> Step:
    return predict_step(partial(simulate, model), how, count_parameters(model)["trained"], model)


def plan(model: PlannedModel, how: Setup, device: str, utilization: float, steps: int | None) -> Prediction:
    (prediction,) = predict(model, [how], device, utilization, steps)
    return prediction


def test_parameters_are_those_of_the_model() -> None:
    model = qkv.QkvDecoderForCausalLM(small().config)
    assert count_parameters(small()) == {
        "total": model.num_parameters(),
        "embedding": (101 + 32) * 32,
        "trained": model.num_parameters(),
    }


PUBLISHED = {
    "gpt2": 124_439_808,
    "whisper_tiny": 37_760_640,
    "clip_vit_b32": 151_277_313,
    "detr_r50": 41_524_768,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_model(name: str) -> None:
    assert count_parameters(find(name, [], None))["total"] == PUBLISHED[name]


def test_flops_of_gpt2_follow_the_formula() -> None:
    """Forward 2 N + 4 L T D per token, N without the tables but with the head; flash attention's backward 2.5 times."""
    found = flops_per_unit(find("gpt2", ["num_hidden_layers=3"], 512))
    matrices, attention = 3 * 12 * 768**2 + 50257 * 768, 4 * 3 * 512 * 768
    assert found["forward"] == 2 * matrices + attention
    assert found["model"] == 6 * matrices + 3 * attention
    assert found["training"] == 6 * matrices + 3.5 * attention


def test_flops_of_a_vision_transformer_follow_the_formula() -> None:
    found = flops_per_unit(find("vit_base_16", ["num_hidden_layers=3"], None))
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
    found = flops_per_unit(
        find("clip_vit_b32", ["text_config={num_hidden_layers: 2}", "vision_config={num_hidden_layers: 3}"], None)
    )
    assert found["forward"] == tower(2, 77, 512) + tower(3, 50, 768) + patches + cosines


def test_flops_of_an_lstm_follow_the_formula() -> None:
    """Two directions that read, one cell that writes, and what the head reads of state, embedding and context."""
    words = ["cell=lstm", "attention=none", "hidden_size=32", "embedding_size=16", "vocab_size=101"]
    reader, writer = 2 * 4 * 32 * (16 + 32), 4 * 32 * (16 + 64 + 32)
    readout, bridge = (32 + 16 + 64 + 101) * 16, 32 * 2 * 32
    found = flops_per_unit(find("rnnsearch_50", [*words, "readout=tanh", "readout_size=16"], 4))
    assert found["forward"] == 2 * (reader + writer + readout + bridge / 4)
    # The first state of a reader is zero, and needs no gradient.
    assert found["training"] == 3 * found["forward"] - 2 * (2 * 4 * 32 * 32) / 4


def test_data_parallel_devices_hold_everything_and_sum_gradients() -> None:
    alone, four = step(small(), setup(world_size=1)), step(small(), setup())
    weights = 4 * count_parameters(small())["total"]
    assert alone.memory["weights"] == weights and alone.communication == []
    assert four.memory == {**alone.memory, "buckets": weights}
    (reduced,) = four.communication
    assert (reduced.kind, reduced.bytes, reduced.sent) == ("all-reduce", weights, 1.5 * weights)


def test_pairs_of_all_devices_compete() -> None:
    subject = find("shapes-captions", [f"model.{part}_config.num_hidden_layers=1" for part in ("text", "vision")], None)
    few, many = (step(subject, setup(world_size=world)) for world in (4, 512))
    # Two vectors of 64 numbers for each of the 2 pairs of a device, and two scalars beside the gradients.
    gathered = 512 * 2 * 2 * 64 * 4
    sent = {found.kind: found.bytes for found in many.communication}
    assert sent == {"all-gather": gathered, "all-reduce": few.memory["weights"] + 2 * 4, "reduce-scatter": gathered}
    assert many.memory["activations"] > few.memory["activations"] + gathered


def test_the_estimate_is_what_the_table_says() -> None:
    found = plan(small("gpt2", "num_hidden_layers=1"), setup("tp", 4, split=4, accumulate=3), "a100", 0.5, 10)
    estimate = found.estimate
    assert estimate is not None
    tokens = 2 * 3 * 32 / 4
    assert estimate.computation == pytest.approx(found.flops["model"] * tokens / (19.5e12 * 0.5))
    assert estimate.blocking == pytest.approx(sum(sent.sent for sent in found.plain.communication) / 300e9)
    assert estimate.blocking > estimate.communication == 0
    assert estimate.step == estimate.computation + estimate.blocking
    assert estimate.hours == pytest.approx(estimate.step * 10 / 3600)


def test_rings_share_the_ports_of_their_nodes() -> None:
    """1 GB summed up by 8 devices of a node, by 64 in 8 nodes, and by 8 that are alone in theirs."""
    h100 = DEVICES["h100"]
    assert Collective("all-reduce", 8, 8, 1, 10**9).seconds(h100) == pytest.approx(2 * 7 / 8 / 450)
    assert Collective("all-reduce", 64, 8, 1, 10**9).seconds(h100) == pytest.approx(2 * 63 / 64 / 400)
    assert Collective("all-reduce", 8, 1, 1, 10**9).seconds(h100) == pytest.approx(2 * 7 / 8 / 50)


def test_checkpointing_takes_less_memory() -> None:
    found = plan(small("gpt2", "vocab_size=7"), setup(batch=8), "h100", 0.4, None)
    assert found.checkpointed.memory["activations"] < found.plain.memory["activations"] / 2
