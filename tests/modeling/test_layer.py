"""The parts of a layer are those of the papers: norms, residual connections, feed-forward networks, and layers dropped."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import reference
from comparison import EXACT, assert_same, decoder, draw, jittered
from qkv.modeling.feed_forward import GLU, MLP
from qkv.modeling.layer import Layer
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.normalization import GAINS, NORMS, Residual, ZeroCenteredLayerNorm, ZeroCenteredRMSNorm, make_norm

ORDERS = {
    "before": reference.residual_pre_norm,
    "after": reference.residual_post_norm,
    "inside": reference.residual_norm_inside,
    "sandwich": reference.residual_sandwich,
}


def assert_share(dropped, rate):
    """So many are true, within five standard deviations of a binomial share."""
    assert abs(dropped.double().mean().item() - rate) <= 5 * (rate * (1 - rate) / dropped.numel()) ** 0.5


# Norms and residual connections ---------------------------------------------------------------------------------------


def loop(norm):
    """The slow counterpart of a norm, on the same parameters."""
    stored = torch.ones(6, dtype=torch.float64) if norm.weight is None else norm.weight
    gain = 1 + stored if isinstance(norm, ZeroCenteredLayerNorm | ZeroCenteredRMSNorm) else stored
    if isinstance(norm, nn.LayerNorm):
        return lambda x: reference.layer_norm(x, gain, norm.bias, norm.eps)
    return lambda x: reference.rms_norm(x, gain, norm.eps)


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("word", NORMS)
@pytest.mark.parametrize("shape", [(6,), (2, 3, 6)], ids=str)
@pytest.mark.parametrize("eps", [1e-12, 0.5])
def test_norm(word, gain, shape, eps):
    norm, hidden = jittered(make_norm(decoder(norm=word, norm_gain=gain, norm_eps=eps))), draw(*shape)
    assert_same(norm(hidden), loop(norm)(hidden), hidden, *norm.parameters())
    assert (gain == "none") == (not list(norm.parameters()))


@pytest.mark.parametrize("word", NORMS)
def test_a_zero_centred_gain_starts_at_1_and_is_multiplied_in_single_precision(word):
    model = QkvDecoderModel(decoder(norm=word, norm_gain="zero_centered"))
    norm, hidden = model.norm, torch.randn(4, 6)
    assert not norm.weight.any()
    with torch.no_grad():
        norm.weight.fill_(0.01)
    actual = norm.bfloat16()(hidden.bfloat16())
    expected = copy.deepcopy(norm).float()(hidden.bfloat16().float())
    assert torch.equal(actual, expected.bfloat16())


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


@pytest.mark.parametrize("place", ORDERS)
def test_residual_with_layer_scale(place):
    residual = Residual(decoder(norm_position=place, layer_scale=0.3, residual_multiplier=0.7), 0).eval()
    assert residual.layer_scale.tolist() == pytest.approx([0.3] * 6)
    residual, branch, hidden = jittered(residual), jittered(nn.Linear(6, 6)), draw(2, 3, 6)

    norms = [residual.norm] if residual.post_norm is None else [residual.norm, residual.post_norm]
    last = {"inside": residual.norm, "sandwich": residual.post_norm}.get(place)

    def scaled(x):
        return reference.layer_scale(0.7 * x, residual.layer_scale)

    actual = residual(hidden, branch(residual.input(hidden)))
    loops = [loop(norm) for norm in norms]
    if last is None:
        expected = ORDERS[place](hidden, lambda x: scaled(branch(x)), *loops)
    else:  # both scale what the norm returns
        expected = ORDERS[place](hidden, branch, *loops[:-1], lambda x: scaled(loops[-1](x)))
    assert_same(actual, expected, hidden, *residual.parameters(), *branch.parameters())


def test_a_residual_without_a_norm():
    residual, hidden = Residual(decoder(), 0, normed=False).eval(), draw(2, 3, 6)
    assert not list(residual.parameters())
    assert_same(residual(hidden, torch.sin(residual.input(hidden))), hidden + torch.sin(hidden), hidden)


def test_only_the_first_norm_may_be_skipped():
    config = decoder(embedding_norm="instead")
    for index, names in ((0, {"mlp_residual"}), (1, {"self_attn_residual", "mlp_residual"})):
        assert {name.split(".")[0] for name, _ in Layer(config, index).named_parameters() if "norm" in name} == names


def test_drop_path_rises_linearly_with_depth():
    config = decoder(num_hidden_layers=5, drop_path_rate=0.4)
    assert [Residual(config, index).drop_path for index in range(5)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert Residual(decoder(num_hidden_layers=1, drop_path_rate=0.4), 0).drop_path == 0


def test_drop_path_drops_whole_samples_of_the_branch_and_keeps_the_expected_value():
    residual = Residual(decoder(drop_path_rate=0.3), 2).train()
    branch, hidden = torch.rand(20_000, 3, 6) + 0.5, torch.randn(20_000, 3, 6)
    kept = (residual.drop(branch) != 0).flatten(1)
    assert torch.equal(kept.all(1), kept.any(1))
    assert_share(~kept[:, 0], 0.3)
    dropped = residual(hidden, branch) - hidden
    gone = dropped.abs().amax((1, 2)) <= 1e-5
    assert_share(gone, 0.3)
    assert (dropped - branch / 0.7)[~gone].abs().max() <= 1e-5
    assert torch.equal(residual.eval().drop(branch), branch)


def test_residual_dropout_acts_on_components():
    residual = Residual(decoder(residual_dropout=0.25), 0).train()
    dropped = residual.drop(torch.ones(200, 10, 6))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert_share(dropped == 0, 0.25)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_layer_is_skipped_in_training_as_often_as_it_should_be(rate):
    layer, hidden = jittered(Layer(decoder(layerdrop=rate), 0)), draw(2, 5, 6)
    assert_share(torch.tensor([layer.train()(hidden) is hidden for _ in range(200)]), rate)
    assert all(layer.eval()(hidden) is not hidden for _ in range(9))


# Feed-forward networks ------------------------------------------------------------------------------------------------

DENSE = {"mlp": MLP, "glu": GLU}


@pytest.mark.parametrize("act", reference.ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("word", DENSE)
def test_feed_forward(word, bias, act):
    module = jittered(DENSE[word](decoder(feed_forward=word, hidden_act=act, mlp_bias=bias))).eval()
    hidden, names = draw(2, 5, 6), ("gate_proj", "up_proj", "down_proj") if word == "glu" else ("up_proj", "down_proj")
    weights = [weight for name in names for weight in (getattr(module, name).weight, getattr(module, name).bias)]
    expected = getattr(reference, word)(hidden, *weights, reference.ACTIVATIONS[act])
    assert_same(module(hidden), expected, hidden, *module.parameters())
    assert len(list(module.parameters())) == len(names) * (2 if bias else 1)


@pytest.mark.parametrize("word", DENSE)
def test_feed_forward_with_an_activation_that_learns(word):
    """One for each layer, in the dtype of the model: its table has one of bfloat16 for all."""
    config = decoder(feed_forward=word, hidden_act="xielu", mlp_bias=False)
    module, other = (DENSE[word](config) for _ in range(2))
    assert module.act_fn is not other.act_fn and {each.dtype for each in module.parameters()} == {torch.float32}
    module, hidden = jittered(module).eval(), draw(2, 5, 6)
    act, names = module.act_fn, ("gate_proj", "up_proj", "down_proj") if word == "glu" else ("up_proj", "down_proj")
    bent = partial(reference.xielu, alpha_p=act.alpha_p, alpha_n=act.alpha_n, beta=act.beta, eps=act.eps)
    weights = [weight for name in names for weight in (getattr(module, name).weight, None)]
    assert_same(module(hidden), getattr(reference, word)(hidden, *weights, bent), hidden, *module.parameters())


@pytest.mark.parametrize("word", DENSE)
def test_dropout_acts_on_inner_units(word):
    """One unit dropped at a position takes its column of the last matrix with it, in all components at once."""
    config = decoder(feed_forward=word, activation_dropout=0.25, intermediate_size=1, mlp_bias=False)
    module, hidden = jittered(DENSE[word](config)), draw(1, 4000, 6)
    dropped, kept = module.train()(hidden), module.eval()(hidden)
    gone = dropped == 0
    assert torch.equal(gone.all(-1), gone.any(-1))
    assert ((dropped - kept / 0.75).abs().amax(-1) <= EXACT)[~gone[..., 0]].all()
    assert_share(gone[..., 0], 0.25)
