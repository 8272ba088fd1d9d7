"""Costs of modules: those of all add up to what the model has, and equal layers are one line."""

import pytest

from qkv.configuration import presets
from qkv.scripts.architecture.costs import Node, count_costs, merged, unfolded
from qkv.scripts.planning.planned_model import find
from qkv.scripts.planning.predict import count_parameters, flops_per_unit

SMALL = ["hidden_size=32", "num_attention_heads=4"]
LAYERS = ["num_hidden_layers=2"]
WORDS = {
    "gpt2": [*SMALL, *LAYERS, "vocab_size=101"],
    "bert_base": [*SMALL, *LAYERS, "vocab_size=101"],
    "t5_small": ["hidden_size=32", "num_attention_heads=4", "num_hidden_layers=2", "vocab_size=101"],
    "vit_base_16": [*SMALL, *LAYERS],
    "clip_vit_b32": ["projection_dim=16"],
    "detr_r50": ["num_hidden_layers=1"],
    "evoformer_small": [*SMALL, *LAYERS, "pair_hidden_size=8", "num_recycles=1"],
    "rnnsearch_50": ["hidden_size=16", "vocab_size=31"],
    "whisper_tiny": ["num_hidden_layers=1"],
}


def leaf(name: str, parameters: int = 4, flops: int = 8, **more: object) -> Node:
    return Node(name, "Linear", (2, 2), (3, 2), parameters, flops, **more)


@pytest.mark.parametrize("name", WORDS)
def test_sums_are_those_of_a_plan(name: str) -> None:
    planned = find(name, WORDS[name], 16 if name in ("rnnsearch_50", "evoformer_small") else None)
    root = count_costs(planned)
    assert root.parameters == count_parameters(planned)["total"]
    forward = flops_per_unit(planned)["forward"] * planned.units
    if name == "vit_base_16":  # a plan computes the last layer at the token alone that the classifier reads
        assert 0.5 * root.flops < forward < root.flops == vit_flops(tokens=197, hidden=32, layers=2)
    else:
        assert root.flops == pytest.approx(forward)
    assert 0.9 * root.parameters <= counted(root) <= root.parameters, "what is not in a child is in its parent"


def vit_flops(tokens: int, hidden: int, layers: int) -> int:
    """The products of a ViT by hand: patches, projections and feed-forward, scores and values, 1,000 classes."""
    patches, classes = 2 * (tokens - 1) * 3 * 16 * 16 * hidden, 2 * hidden * 1000
    layer = 2 * tokens * (4 * hidden * hidden + 2 * hidden * 4 * hidden) + 4 * tokens * tokens * hidden
    return patches + layers * layer + classes


def counted(node: Node) -> int:
    """The parameters of the modules at the ends of the tree, each as often as it stands there."""
    if not node.children:
        return node.times * node.parameters
    return node.times * sum(map(counted, node.children))


def test_layers_are_one_line_with_their_number_and_tied_weights_count_once() -> None:
    root = count_costs(find("gpt2", WORDS["gpt2"], 16))
    model, head = root.children
    (layers,) = [child for child in model.children if child.kind == "Layer"]
    assert (layers.name, layers.times, layers.output) == ("layers.0", 2, (16, 32))
    assert head.tied and head.parameters == 0 and head.flops == 2 * 16 * 32 * 101
    (up,) = [child for part in layers.children for child in part.children if child.name == "up_proj"]
    assert (up.weight, up.output, up.flops) == ((128, 32), (16, 128), 2 * 16 * 32 * 128)
    names = [child.name for child in layers.children]
    assert names == ["self_attn", "self_attn_residual.norm", "mlp", "mlp_residual.norm"], "no dropout, no identity"


def test_layers_that_differ_stay_apart() -> None:
    rows = [leaf("layers.0"), leaf("layers.1"), leaf("layers.2", parameters=5), leaf("layers.3"), leaf("norm")]
    assert [(one.name, one.times) for one in merged(rows)] == [
        ("layers.0", 2),
        ("layers.2", 1),
        ("layers.3", 1),
        ("norm", 1),
    ]
    assert [one.times for one in merged([leaf("q_proj"), leaf("k_proj")])] == [1, 1]


def test_what_is_alone_takes_the_place_of_its_parent() -> None:
    alone = Node("residual", "Residual", None, (3, 2), 4, 8, children=(leaf("norm"),))
    more = Node("head", "Head", None, (3, 2), 4, 9, children=(leaf("norm"),))
    assert [one.name for one in unfolded([alone, more])] == ["residual.norm", "head"]


def test_a_tree_is_json() -> None:
    told = Node("a", "A", None, None, 4, 8, children=(leaf("b", times=2),)).as_json()
    assert told["children"][0] | {"children": []} == told["children"][0]
    assert (told["children"][0]["times"], told["children"][0]["weight"]) == (2, (2, 2))


def test_every_preset_is_counted_here_or_is_the_size_of_another() -> None:
    kinds = {type(getattr(presets, name)()) for name in presets.names()}
    assert {type(getattr(presets, name)()) for name in WORDS} == kinds
