"""A layer's part of a step of generation: the numbers of the layer, for every part that a layer may have."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

import tiny
from qkv.modeling.context import LayerContext, Memory
from qkv.modeling.fast_paths.layer_step import SHORT_ACTIVATIONS, LayerStep, layer_steps, norm_step, with_mask
from qkv.modeling.feed_forward import ACTIVATIONS
from qkv.modeling.layer import LAYERS, Layer
from qkv.modeling.normalization import NORMS
from qkv.modeling.position.hooks import NO_POSITION, PositionState, Rotation

ROWS, CACHED = 2, 5
PARTS: list[dict[str, Any]] = [
    *({}, {"norm": "rms"}, {"norm_first": False}, {"parallel_residual": True}, {"layer_scale": 0.1}),
    *({"query_key_norm": True}, {"query_key_norm": True, "norm": "rms"}, {"feed_forward": "glu"}),
    *({"num_key_value_heads": 1}, {"attention_bias": ["q_proj", "v_proj"]}, {"attention_bias": False}),
    *({"embedding_norm": "instead"}, {"norm_bias": False}, {"attention_multiplier": 0.3}),
]


def layer_of(**fields: Any) -> Layer:
    torch.manual_seed(0)
    config = tiny.decoder(**fields)
    layer = LAYERS[config.parallel_residual](config, 0).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, 0.1, 0.3)
    return layer


def cached(layer: Layer, heads: int) -> DynamicCache:
    cache = DynamicCache()
    torch.manual_seed(1)
    cache.update(*torch.randn(2, ROWS, heads, CACHED, layer.self_attn.head_dim), 0)
    return cache


def assert_equal(layer: Layer, mask: Tensor | None = None, state: PositionState = NO_POSITION) -> None:
    hidden, heads = torch.randn(ROWS, layer.self_attn.q_proj.in_features), layer.self_attn.k_proj.out_features
    heads //= layer.self_attn.head_dim
    step = layer_steps(layer)[layer]
    with torch.no_grad():
        given = LayerContext(mask, state, backend="sdpa")
        expected = layer(hidden[:, None], given._replace(cache=cached(layer, heads)))
        cache = cached(layer, heads)
        assert_close(step(hidden[:, None], given._replace(cache=cache)), expected, rtol=1e-5, atol=1e-5)
    assert isinstance(step, LayerStep) and cache.get_seq_length() == CACHED + 1


@pytest.mark.parametrize("fields", PARTS, ids=str)
def test_parts_of_a_layer(fields: dict[str, Any]) -> None:
    assert_equal(layer_of(**fields))


@pytest.mark.parametrize("word", ["gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "relu", "tanh", "gelu_bloom"])
def test_activations(word: str) -> None:
    assert_equal(layer_of(hidden_act=word))
    layer = layer_of(hidden_act=word)
    given = torch.linspace(-6, 6, 101)
    act = SHORT_ACTIVATIONS.get(type(layer.mlp.act_fn), layer.mlp.act_fn)
    assert_close(act(given), ACTIVATIONS[word](given), rtol=0, atol=2e-6)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("scale", [0, 1e-4, 1, 1e4])
def test_norms_of_one_row_and_of_several(norm: str, scale: float) -> None:
    config = tiny.decoder(norm=norm)
    own = NORMS[norm](config)
    nn.init.normal_(own.weight)
    with torch.no_grad():
        for rows in (1, 3):
            hidden = torch.randn(rows, config.hidden_size) * scale
            assert_close(norm_step(config, own)(hidden), own(hidden), rtol=1e-5, atol=1e-6)
        own.eps = 0.0
        none = torch.zeros(1, config.hidden_size)
        assert_close(norm_step(config, own)(none), own(none), equal_nan=True)
        half = own.to(torch.bfloat16)
        expected = half(hidden.bfloat16())
        assert_close(norm_step(config, half)(hidden.bfloat16()), expected, rtol=0, atol=0, equal_nan=True)


def angles(seed: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 1, 1, width, generator=generator), torch.randn(1, 1, 1, width, generator=generator)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_rotations(*, same: bool, normed: bool) -> None:
    layer = layer_of(query_key_norm=normed, num_key_value_heads=1)
    query, key = angles(0, layer.self_attn.head_dim), angles(1, layer.self_attn.head_dim)
    assert_equal(layer, state=PositionState(Rotation(query, query if same else key)))


MASKS = {
    "nothing": None,
    "predicate": torch.tensor([1, 0, 1, 1, 0, 1]).bool().expand(ROWS, 1, 1, -1),
    "numbers": torch.tensor([0.0, -1, 0, 0, -9, 0]).expand(ROWS, 1, 1, -1),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("biased", [True, False])
def test_masks_and_biases(name: str, groups: int, *, biased: bool) -> None:
    layer = layer_of(num_key_value_heads=groups)
    bias = torch.randn(1, layer.self_attn.config.num_attention_heads, 1, CACHED + 1) if biased else None
    assert_equal(layer, MASKS[name], PositionState(bias=bias))
    if biased and name == "predicate":
        assert with_mask(bias, MASKS[name])[0, 0, 0, 1] == torch.finfo(torch.float32).min


def test_a_layer_that_reads_memory() -> None:
    torch.manual_seed(0)
    layer = Layer(tiny.encoder_decoder("transformer").decoder, 0).eval()
    hidden = torch.randn(ROWS, layer.self_attn.q_proj.in_features)
    memory = torch.randn(ROWS, 4, layer.cross_attn.k_proj.in_features)
    heads = layer.self_attn.k_proj.out_features // layer.self_attn.head_dim
    outputs = []
    with torch.no_grad():
        for step in (layer, layer_steps(layer)[layer]):
            cache = EncoderDecoderCache(cached(layer, heads), DynamicCache())
            outputs.append(step(hidden[:, None], LayerContext(memory=Memory(memory), cache=cache, backend="sdpa")))
    assert_close(*outputs, rtol=1e-5, atol=1e-5)


def test_vectors_for_queries_and_keys_go_through_the_layer() -> None:
    assert_equal(
        layer_of(), state=PositionState(query_key=torch.randn(ROWS, 1, layer_of().self_attn.q_proj.in_features))
    )


@pytest.mark.parametrize("part", ["mlp", "up_proj", "layer"])
def test_a_layer_with_parts_of_somebody_else_is_called(part: str) -> None:
    class Own(nn.Linear):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden) * 2

    layer = layer_of()
    if part == "up_proj":
        layer.mlp.up_proj.__class__ = Own
    if part == "mlp":
        layer.mlp.__class__ = type("Own", (type(layer.mlp),), {})
    if part == "layer":
        layer.__class__ = type("Own", (Layer,), {})
    assert not layer_steps(layer)
