"""A layer's part of a step of generation: the numbers of the layer, for every part that a layer may have."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

import tiny
from qkv.configuration.axes import ActivationName
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.fast_paths.layer_step import layer_steps
from qkv.modeling.layer import LAYERS, Layer
from qkv.modeling.position.hooks import NO_POSITION, PositionState, Rotation

CACHED = 5
PARTS: list[dict[str, Any]] = [
    *({}, {"parallel_residual": True}, {"layer_scale": 0.1}, {"query_key_norm": True}, {"feed_forward": "glu"}),
    *({"norm": "rms"}, {"norm_first": False}, {"norm": "rms", "norm_first": False}),
    *({"query_key_norm": True, "norm": "rms"}, {"num_key_value_heads": 1}, {"attention_bias": ["q_proj", "v_proj"]}),
    *({"attention_bias": False}, {"embedding_norm": "instead"}, {"norm_bias": False}, {"attention_multiplier": 0.3}),
    *({"hidden_act": word} for word in get_args(ActivationName)),
]


def layer_of(**fields: Any) -> Layer:
    torch.manual_seed(0)
    config = tiny.decoder(**fields)
    layer = LAYERS[config.parallel_residual](config, 0).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, 0.1, 0.3)
    return layer


def cached(layer: Layer, rows: int) -> DynamicCache:
    cache, width = DynamicCache(), layer.self_attn.head_dim
    torch.manual_seed(1)
    cache.update(*torch.randn(2, rows, layer.self_attn.k_proj.out_features // width, CACHED, width), 0)
    return cache


def assert_equal(
    layer: Layer, mask: Tensor | None = None, state: PositionState = NO_POSITION, *, rows: int = 2, scale: float = 1.0
) -> None:
    hidden = scale * torch.randn(rows, 1, layer.self_attn.q_proj.in_features)
    (step,) = layer_steps(layer.self_attn.config, [layer], 1)
    with torch.no_grad():
        given = LayerContext(mask, state, backend="sdpa")
        expected = layer(hidden, given._replace(cache=cached(layer, rows)))
        cache = cached(layer, rows)
        assert_close(step(hidden[:, 0], given._replace(cache=cache)), expected[:, 0], rtol=1e-5, atol=1e-5)
    assert cache.get_seq_length() == CACHED + 1


@pytest.mark.parametrize("fields", PARTS, ids=str)
def test_parts_of_a_layer(fields: dict[str, Any]) -> None:
    for rows in (1, 2):
        assert_equal(layer_of(**fields), rows=rows)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize(("scale", "norm_first"), [(0, True), (1e-4, True), (1e4, False)])
def test_norms_of_inputs_of_any_size(norm: str, scale: float, *, norm_first: bool) -> None:
    for rows in (1, 3):
        assert_equal(layer_of(norm=norm, norm_first=norm_first), rows=rows, scale=scale)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_rotations(*, same: bool, normed: bool) -> None:
    layer = layer_of(query_key_norm=normed, num_key_value_heads=1)
    query, key = ((torch.randn(1, 1, 1, layer.self_attn.head_dim), torch.randn(1, 1, 1, 8)) for _ in range(2))
    assert_equal(layer, state=PositionState(Rotation(query, query if same else key)))


MASKS = {
    "nothing": None,
    "predicate": torch.tensor([1, 0, 1, 1, 0, 1]).bool().expand(2, 1, 1, -1),
    "numbers": torch.tensor([0.0, -1, 0, 0, -9, 0]).expand(2, 1, 1, -1),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("biased", [True, False])
def test_masks_and_biases(name: str, groups: int, *, biased: bool) -> None:
    layer = layer_of(num_key_value_heads=groups)
    bias = torch.randn(1, layer.self_attn.config.num_attention_heads, 1, CACHED + 1) if biased else None
    assert_equal(layer, MASKS[name], PositionState(bias=bias))


def test_a_layer_that_reads_memory() -> None:
    torch.manual_seed(0)
    layer = Layer(tiny.encoder_decoder("transformer").decoder, 0).eval()
    hidden = torch.randn(2, 1, layer.self_attn.q_proj.in_features)
    memory = torch.randn(2, 4, layer.cross_attn.k_proj.in_features)
    caches = [EncoderDecoderCache(cached(layer, 2), DynamicCache()) for _ in range(2)]
    contexts = [LayerContext(memory=Memory(memory), cache=cache, backend="sdpa") for cache in caches]
    (step,) = layer_steps(layer.self_attn.config, [layer], 1)
    with torch.no_grad():
        assert_close(step(hidden[:, 0], contexts[0]), layer(hidden, contexts[1])[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["mlp", "mlp.up_proj", "self_attn", ""])
def test_subclasses_have_no_step(part: str) -> None:
    layer = layer_of()
    module = layer.get_submodule(part)
    module.__class__ = type("Own", (type(module),), {})
    assert not layer_steps(layer.self_attn.config, [layer], 1)
