"""A layer that reads memory is its three branches, each a residual line, in the order of the figure."""

import pytest
import torch

import reference
from comparison import assert_same, decoder, draw, jittered
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.layer import Layer

ORDERS = {True: reference.residual_pre_norm, False: reference.residual_post_norm}
EVERY_ORDER = pytest.mark.parametrize("norm_first", ORDERS, ids=["pre-norm", "post-norm"])


def config_of(**fields):
    return decoder(**{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "gelu_new", **fields})


def attend(module, config, x_q, x_kv, **given):
    weights = [
        tensor
        for layer in (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
        for tensor in (layer.weight, layer.bias)
    ]
    heads = (config.num_attention_heads, config.num_key_value_heads)
    return reference.multi_head_attention(x_q, x_kv, *weights, *heads, **given)[0]


def norm(residual):
    return lambda x: reference.layer_norm(x, residual.norm.weight, residual.norm.bias, residual.norm.eps)


def loop(layer, config, hidden, memory=None):
    add, causal = ORDERS[config.norm_first], {"visible": lambda b, t, s: s <= t}
    hidden = add(hidden, lambda x: attend(layer.self_attn, config, x, x, **causal), norm(layer.self_attn_residual))
    if memory is not None:
        hidden = add(hidden, lambda x: attend(layer.cross_attn, config, x, memory), norm(layer.cross_attn_residual))
    up, down = layer.mlp.up_proj, layer.mlp.down_proj

    def feed_forward(x):
        return reference.mlp(x, up.weight, up.bias, down.weight, down.bias, reference.gelu_new)

    return add(hidden, feed_forward, norm(layer.mlp_residual))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_layer_is_skipped_in_training_as_often_as_it_should_be(rate):
    layer, hidden = jittered(Layer(config_of(layerdrop=rate), 0)), draw(2, 5, 6)
    torch.manual_seed(0)
    skipped = [layer.train()(hidden) is hidden for _ in range(400)]
    assert abs(sum(skipped) / 400 - rate) < 0.07 * bool(rate) + 1e-9
    assert all(layer.eval()(hidden) is not hidden for _ in range(20))


@EVERY_ORDER
def test_layer_that_reads_memory(norm_first):
    config, hidden, memory = config_of(norm_first=norm_first, cross_attention=True), draw(2, 5, 6), draw(2, 7, 6)
    layer = jittered(Layer(config, 0)).eval()
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    actual = layer(hidden, LayerContext(causal, memory=Memory(memory)))
    assert_same(actual, loop(layer, config, hidden, memory), hidden, memory, *layer.parameters())


def test_only_the_first_norm_may_be_skipped():
    config = config_of(embedding_norm="instead")
    for index, names in ((0, {"mlp_residual"}), (1, {"self_attn_residual", "mlp_residual"})):
        assert {name.split(".")[0] for name, _ in Layer(config, index).named_parameters() if "norm" in name} == names
