"""Vectors are normalised as the papers say, and branches dropped as often as the config says."""

import pytest
import torch
from torch import nn

import reference
from comparison import assert_same, decoder, draw, jittered
from qkv.modeling.normalization import NORMS, Residual

SHAPES = [(6,), (5, 6), (2, 3, 6)]
ORDERS = {True: reference.residual_pre_norm, False: reference.residual_post_norm}


def around(residual, hidden, branch):
    """A residual connection around a branch, as a layer writes it."""
    return residual(hidden, branch(residual.input(hidden)))


def loop(norm):
    """The slow counterpart of a norm, on the same parameters."""
    if isinstance(norm, nn.LayerNorm):
        return lambda x: reference.layer_norm(x, norm.weight, norm.bias, norm.eps)
    return lambda x: reference.rms_norm(x, norm.weight, norm.eps)


@pytest.mark.parametrize("word", NORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("eps", [1e-12, 0.5])
def test_norm(word, shape, eps):
    norm, hidden = jittered(NORMS[word](decoder(norm=word, norm_eps=eps))), draw(*shape)
    assert_same(norm(hidden), loop(norm)(hidden), hidden, *norm.parameters())


def test_rms_norm_of_half_precision_is_taken_in_single():
    """The square of 300 does not fit into float16."""
    norm = NORMS["rms"](decoder(norm="rms")).half()
    large = torch.full((1, 6), 300.0, dtype=torch.float16)
    assert torch.equal(norm(large), torch.ones(1, 6, dtype=torch.float16))


@pytest.mark.parametrize("word", NORMS)
def test_norm_of_another_width(word):
    norm, heads = jittered(NORMS[word](decoder(norm=word, norm_bias=False), 4)), draw(2, 3, 5, 4)
    assert getattr(norm, "bias", None) is None
    assert_same(norm(heads), loop(norm)(heads), heads, *norm.parameters())


@pytest.mark.parametrize("norm_first", ORDERS)
def test_residual_with_layer_scale(norm_first):
    residual = Residual(decoder(norm_first=norm_first, layer_scale=0.3), 0).eval()
    assert residual.layer_scale.tolist() == pytest.approx([0.3] * 6)
    residual, branch, hidden = jittered(residual), jittered(nn.Linear(6, 6)), draw(2, 3, 6)

    def scaled(x):
        return reference.layer_scale(branch(x), residual.layer_scale)

    expected = ORDERS[norm_first](hidden, scaled, loop(residual.norm))
    assert_same(around(residual, hidden, branch), expected, hidden, *residual.parameters(), *branch.parameters())


def test_a_residual_without_a_norm():
    residual, hidden = Residual(decoder(), 0, normed=False).eval(), draw(2, 3, 6)
    assert not list(residual.parameters())
    assert_same(around(residual, hidden, torch.sin), hidden + torch.sin(hidden), hidden)


def test_drop_path_rises_linearly_with_depth():
    config = decoder(num_hidden_layers=5, drop_path_rate=0.4)
    assert [Residual(config, index).drop_path for index in range(5)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert Residual(decoder(num_hidden_layers=1, drop_path_rate=0.4), 0).drop_path == 0


def test_drop_path_drops_whole_samples_and_keeps_the_expected_value():
    rate, samples = 0.3, 20_000
    residual = Residual(decoder(drop_path_rate=rate), 2)
    branch = torch.rand(samples, 3, 6) + 0.5
    dropped = residual.train().drop(branch)
    kept = (dropped != 0).flatten(1)
    # A sample loses all of its branch or nothing.
    assert torch.equal(kept.all(1), kept.any(1))
    share = kept[:, 0].double().mean().item()
    # Five standard deviations of a binomial share.
    assert abs(share - (1 - rate)) <= 5 * (rate * (1 - rate) / samples) ** 0.5
    assert torch.equal(dropped[kept[:, 0]], branch[kept[:, 0]] / (1 - residual.drop_path))
    spread = dropped.double().mean((1, 2)).std().item() / samples**0.5
    assert abs(dropped.double().mean().item() - branch.double().mean().item()) <= 5 * spread
    assert torch.equal(residual.eval().drop(branch), branch)


def test_drop_path_takes_the_branch_and_never_the_input():
    residual = Residual(decoder(drop_path_rate=0.5), 2).train()
    hidden = torch.randn(64, 3, 6)
    output = residual(hidden, torch.ones_like(hidden))
    left = (output - hidden)[:, 0, 0]
    gone, doubled = left.abs() <= 1e-5, (left - 2).abs() <= 1e-5
    assert (gone | doubled).all() and gone.any() and doubled.any()


def test_residual_dropout_acts_on_components():
    residual = Residual(decoder(residual_dropout=0.25), 0).train()
    dropped = residual.drop(torch.ones(200, 10, 6))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert abs((dropped == 0).double().mean().item() - 0.25) <= 5 * (0.25 * 0.75 / dropped.numel()) ** 0.5
