"""A block's order is the paper's, and what is dropped is dropped in whole rows and columns."""

import pytest
import torch

from comparison import assert_same, draw, jittered
from comparison import pair as config_of
from qkv.modeling.context import LayerContext
from qkv.modeling.pair.axial_attention import mask_scores, with_bias
from qkv.modeling.pair.block import PairBlock, SharedDropout

REAL = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
SEQUENCES = torch.tensor([[1, 1, 1], [1, 0, 1]]).bool()
OPTIONS = {"attention_implementation": "eager"}


def evoformer(block, rows, pair, columns):
    """Algorithm 6, line by line, of the modules that have tests of their own."""
    context, chunks = LayerContext(backend="eager"), {"chunk_size": 9}
    norms = {name: residual.norm for name, residual in block.pair_residuals.items()}
    bias = mask_scores(block.row_bias(pair), REAL)
    rows = rows + block.row_attn(block.row_attn_residual.norm(rows), with_bias(context, bias), **chunks)[0]
    if columns:
        turned = block.column_attn_residual.norm(rows).transpose(1, 2)
        hiding = with_bias(context, mask_scores(None, SEQUENCES))
        rows = rows + block.column_attn(turned, hiding, **chunks)[0].transpose(1, 2)
    rows = rows + block.transition(block.transition_residual.norm(rows))
    mask = REAL[:, None] & SEQUENCES[..., None] if columns else REAL[:, None]
    pair = pair + block.outer_product(rows, mask, 9)
    for name in ("outgoing", "incoming"):
        pair = pair + getattr(block, name)(norms[name](pair), REAL)
    for name in ("starting", "ending"):
        pair = pair + getattr(block, name)(norms[name](pair), REAL, context, **chunks)
    return rows, pair + block.pair_transition(norms["pair_transition"](pair))


@pytest.mark.parametrize("columns", [False, True], ids=["one sequence", "alignment"])
def test_order_of_updates(columns):
    block = jittered(PairBlock(config_of(column_attention=columns), 0)).eval()
    hidden, pair = draw(2, 3, 4, 8) if columns else draw(2, 4, 8), draw(2, 4, 4, 6)
    actual, actual_pair, _ = block(hidden, pair, REAL, SEQUENCES if columns else None, **OPTIONS)
    expected, expected_pair = evoformer(block, hidden if columns else hidden[:, None], pair, columns)
    assert_same(actual, expected if columns else expected[:, 0], hidden, pair)
    assert_same(actual_pair, expected_pair, hidden, pair, *block.parameters())


@pytest.mark.parametrize("columns", [False, True])
def test_components_are_dropped_in_whole_rows_or_columns(columns):
    dropout, pair = SharedDropout(0.5, columns=columns), torch.ones(3, 5, 5, 64)
    dropped = dropout(pair)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    along = 1 if columns else 2
    assert (dropped == dropped.select(along, 0).unsqueeze(along)).all()
    assert torch.equal(dropout.eval()(pair), pair)


def test_each_branch_of_pairs_but_the_last_is_dropped_alike_along_what_it_attends_to():
    """Algorithm 6, lines 5 to 9: DropoutRowwise three times, DropoutColumnwise, and none of the transition."""
    block = PairBlock(config_of(pair_dropout=0.25), 0)
    rates = {name: (residual.dropout.p, getattr(residual.dropout, "columns", None)) for name, residual in
             block.pair_residuals.items()}  # fmt: skip
    rows, columns = (0.25, False), (0.25, True)
    assert rates == {
        "outgoing": rows, "incoming": rows, "starting": rows, "ending": columns, "pair_transition": (0.0, None),
    }  # fmt: skip
