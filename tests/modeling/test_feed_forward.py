"""Each position is transformed as the papers say, with every activation."""

from typing import get_args

import pytest
import torch

import reference
from comparison import assert_same, decoder, draw, jittered
from qkv.configuration.axes import ActivationName
from qkv.modeling.feed_forward import FEED_FORWARDS


def loop(module, word, activation, hidden):
    weights = [(layer.weight, layer.bias) for layer in (module.up_proj, module.down_proj)]
    if word == "mlp":
        return reference.mlp(hidden, *weights[0], *weights[1], activation)
    gate = (module.gate_proj.weight, module.gate_proj.bias)
    return reference.glu(hidden, *gate, *weights[0], *weights[1], activation)


@pytest.mark.parametrize("act", get_args(ActivationName))
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("word", FEED_FORWARDS)
def test_feed_forward(word, bias, act):
    module = jittered(FEED_FORWARDS[word](decoder(feed_forward=word, hidden_act=act, mlp_bias=bias))).eval()
    hidden = draw(2, 5, 6)
    expected = loop(module, word, reference.ACTIVATIONS[act], hidden)
    assert_same(module(hidden), expected, hidden, *module.parameters())
    assert len(list(module.parameters())) == (3 if word == "glu" else 2) * (2 if bias else 1)


@pytest.mark.parametrize("word", FEED_FORWARDS)
def test_dropout_acts_on_inner_units(word):
    """One unit dropped at a position takes its column of the last matrix with it, in all components at once."""
    config = decoder(feed_forward=word, activation_dropout=0.25, intermediate_size=1, mlp_bias=False)
    module = jittered(FEED_FORWARDS[word](config))
    hidden = draw(1, 4000, 6)
    dropped, kept = module.train()(hidden), module.eval()(hidden)
    gone = dropped == 0
    assert torch.equal(gone.all(-1), gone.any(-1))
    assert ((dropped - kept / 0.75).abs().amax(-1) <= 1e-12)[~gone[..., 0]].all()
    assert abs(gone[..., 0].double().mean().item() - 0.25) <= 5 * (0.25 * 0.75 / 4000) ** 0.5
