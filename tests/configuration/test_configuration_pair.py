"""Sizes of models of pairs follow from each other, and impossible ones are refused."""

import pytest

from comparison import PAIR
from errors import raises_sentence
from qkv import QkvPairConfig


def test_sizes_that_are_left_out_follow():
    config = QkvPairConfig(hidden_size=64, pair_hidden_size=24)
    assert (config.intermediate_size, config.pair_intermediate_size, config.outer_product_size) == (256, 96, 32)
    assert QkvPairConfig(pair_hidden_size=24, outer_product="difference").outer_product_size == 12


def test_parts_have_the_sizes_of_residues_and_pairs():
    config = QkvPairConfig(**PAIR, residual_dropout=0.1, pair_dropout=0.2, attention_gate=False)
    for stack, names, dropout in (
        (config.residue_stack(), ("hidden_size", "num_attention_heads", "intermediate_size"), 0.1),
        (config.pair_stack(), ("pair_hidden_size", "num_pair_attention_heads", "pair_intermediate_size"), 0.0),
    ):
        assert [stack.hidden_size, stack.num_attention_heads, stack.intermediate_size] == [PAIR[name] for name in names]
        assert stack.biased_projections == ("o_proj",) and not stack.causal and not stack.attention_gate
        assert stack.residual_dropout == dropout


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_size": 10, "num_attention_heads": 3}, ("hidden_size=10", "num_attention_heads=3")),
        ({"pair_hidden_size": 10}, ("pair_hidden_size=10", "num_pair_attention_heads=4")),
        ({"column_attention": True, "outer_product": "difference"}, ("column_attention=True", "outer_product='mean'")),
        ({"outer_product": "differences"}, ("outer_product='differences'", "difference")),
    ],
)
def test_impossible_sizes_are_refused(fields, named):
    with raises_sentence(*named):
        QkvPairConfig(**fields)
