"""Rotations and score biases are those of their papers, and depend on distances alone."""

import pytest
import torch
from transformers import DINOv3ViTConfig, LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

import reference
from comparison import PLACES, TRAINED, assert_same, decoder, draw, encoder, encoding, exact, vision
from errors import raises_sentence
from qkv.configuration.configuration_position import ROPE_TYPES
from qkv.modeling.position import POSITIONS
from qkv.modeling.position.hooks import Embedded, apply_rotation

SCALINGS = {
    "default": {"rope_theta": 100.0},
    "linear": {"rope_theta": 100.0, "factor": 3.0},
    "dynamic": {"rope_theta": 100.0, "factor": 2.0},
    "yarn": {"rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": TRAINED},
    "longrope": {
        "rope_theta": 100.0,
        "original_max_position_embeddings": TRAINED,
        "short_factor": [1.0, 1.5, 2.0, 1.0],
    },
    "llama3": {"rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
SCALINGS["longrope"] |= {"factor": 4.0, "long_factor": [2.0, 3.5, 7.0, 30.0]}
SCALINGS["llama3"]["original_max_position_embeddings"] = TRAINED


def rope(kind, **fields):
    return decoder(**{"position": "rope", "rope_parameters": {"rope_type": kind, **SCALINGS[kind]}, **fields})


def test_every_scaling_is_tested():
    assert tuple(SCALINGS) == ROPE_TYPES


@pytest.mark.parametrize("places", [PLACES, PLACES[1:], PLACES + 30], ids=["rows", "shared row", "past the trained"])
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rope(places, partial):
    config = rope("default", head_dim=8, max_position_embeddings=TRAINED)
    config.rope_parameters["partial_rotary_factor"] = partial
    module, heads = encoding(config), draw(2, 3, 7, 8)
    with exact():
        actual, keys = apply_rotation(heads, heads, module.rotation(places, torch.float64))
    expected = reference.rotate_heads(heads, places.expand(2, -1), reference.rope_frequencies(int(8 * partial), 100.0))
    assert torch.equal(actual, keys)
    assert_same(actual, expected, heads)


@pytest.mark.parametrize("kind", ROPE_TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [7, 29])
def test_rope_is_bit_equal_to_transformers(kind, dtype, length):
    config = rope(kind, head_dim=8, max_position_embeddings=TRAINED)
    parameters = {"rope_type": kind, **SCALINGS[kind]}
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "head_dim": 8, "max_position_embeddings": TRAINED}
    theirs = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=parameters))
    places = torch.arange(length)[None]
    cosines, sines = theirs(torch.zeros(1, dtype=dtype), places)
    ours = POSITIONS["rope"](config).rotation(places, dtype).query
    first, second = sines.chunk(2, dim=-1)
    assert torch.equal(ours[0][:, 0], cosines) and torch.equal(ours[1][:, 0], torch.cat((-first, second), dim=-1))


@pytest.mark.parametrize("grid", [None, (2, 4), (4, 1)])
@pytest.mark.parametrize("prefix", [0, 3])
def test_rope_of_patches(grid, prefix):
    tokens = {"class_token": prefix > 0, "num_register_tokens": max(prefix - 1, 0), "pooling": "mean"}
    config = vision(position="rope_2d", head_dim=8, rope_parameters={"rope_theta": 100.0}, **tokens)
    rows, columns = grid or (3, 5)
    length = prefix + rows * columns
    module, heads = encoding(config), draw(2, 3, length, 8)
    with exact():
        rotation = module.rotation(torch.arange(length)[None], torch.float64, None, grid)
        actual, keys = apply_rotation(heads, heads, rotation)
    expected = reference.rotate_patches(heads, (rows, columns), reference.rope_frequencies(4, 100.0))
    assert torch.equal(actual, keys) and torch.equal(actual[:, :, :prefix], heads[:, :, :prefix])
    assert_same(actual, expected, heads)
    with raises_sentence(f"{length + 1} tokens", f"{prefix}", f"({rows}, {columns})"):
        module.rotation(torch.arange(length + 1)[None], torch.float64, None, grid)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [1, 3, 7])
def test_rope_of_patches_is_bit_equal_to_transformers(heads, dtype):
    sizes = {"hidden_size": 20 * heads, "num_attention_heads": heads, "image_size": (24, 40), "patch_size": 4}
    theirs = DINOv3ViTRopePositionEmbedding(DINOv3ViTConfig(**sizes)).eval()
    cosines, sines = theirs(torch.zeros(1, 3, 24, 40, dtype=dtype))
    config = vision(
        **sizes, head_dim=20, position="rope_2d", rope_parameters={"rope_theta": 100.0}, num_register_tokens=2
    )
    ours = POSITIONS["rope_2d"](config).rotation(torch.arange(63)[None], dtype).query
    first, second = sines.chunk(2, dim=-1)
    assert torch.equal(ours[0][0, 0, 3:], cosines) and torch.equal(ours[1][0, 0, 3:], torch.cat((-first, second), -1))


def test_rope_reads_its_config_at_every_forward():
    module = POSITIONS["rope"](rope("default"))
    before = module.rotation(PLACES, torch.float32).query
    module.config.rope_parameters = {"rope_type": "default", "rope_theta": 7.0}
    assert not torch.equal(before[0], module.rotation(PLACES, torch.float32).query[0])


@pytest.mark.parametrize("places", [PLACES, PLACES[1:], PLACES + 900], ids=["rows", "shared row", "late"])
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_xpos(places, partial):
    config = decoder(position="xpos", head_dim=8, rope_parameters={"partial_rotary_factor": partial})
    module, query, key = encoding(config), draw(2, 3, 7, 8), draw(2, 3, 7, 8)
    with exact():
        actual = apply_rotation(query, key, module.rotation(places, torch.float64))
    frequencies = reference.rope_frequencies(int(8 * partial), 10000.0)
    for heads, sign, turned in ((query, 1, actual[0]), (key, -1, actual[1])):
        expected = reference.rotate_heads(heads, places.expand(2, -1), frequencies)
        assert_same(turned, reference.xpos_scale(expected, places, int(8 * partial), sign), heads)


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi(heads):
    """BLOOM multiplies slopes by the key's position alone, which shifts all scores of a row equally."""
    module = encoding(decoder(position="alibi", num_attention_heads=heads, head_dim=2))
    queries, keys = PLACES[:, 4:], PLACES
    with exact():
        actual = module.bias(queries, keys)
    assert_same(actual, reference.alibi_bias(heads, queries, keys))
    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    assert (module.slopes("cpu")[:, None] * torch.arange(5) - theirs[:, 0]).abs().max() <= 1e-6


BUCKETS = [(4, 5), (8, 20), (32, 128), (16, 50)]
STACKS = pytest.mark.parametrize("stack", [encoder, decoder], ids=["both ways", "causal"])


@STACKS
@pytest.mark.parametrize(("buckets", "furthest"), BUCKETS)
def test_t5_buckets(stack, buckets, furthest):
    sizes = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": furthest}
    module = POSITIONS["t5"](stack(position="t5", **sizes))
    offsets = torch.arange(-300, 301)
    with exact():
        actual = module.bucket(offsets).tolist()
    both_ways = stack is encoder
    assert actual == [reference.t5_bucket(offset, both_ways, buckets, furthest) for offset in offsets.tolist()]
    # In single precision, as trained, transformers' own to the last bucket.
    theirs = T5Attention._relative_position_bucket(offsets, both_ways, buckets, furthest)
    assert torch.equal(module.bucket(offsets), theirs)


@STACKS
def test_t5_bias(stack):
    sizes = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
    module = encoding(stack(position="t5", **sizes))
    queries, keys = PLACES[:, 4:] + 20, PLACES
    with exact():
        actual = module.bias(queries, keys)
    expected = reference.t5_bias(module.table.weight, queries, keys, stack is encoder, 20)
    assert_same(actual, expected, module.table.weight)


@STACKS
def test_a_table_and_a_bias(stack):
    module = encoding(stack(position="learned_and_t5", relative_attention_num_buckets=8))
    hidden = draw(2, 7, 6)
    with exact():
        embedded, actual = module.embed(Embedded(hidden), PLACES), module.bias(PLACES, PLACES)
    assert_same(embedded, hidden + reference.learned_positions(PLACES, module.table.weight), hidden)
    table = module.relative.table.weight
    assert_same(actual, reference.t5_bias(table, PLACES, PLACES, stack is encoder), table)


@STACKS
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_kerple(stack, heads):
    module = encoding(stack(position="kerple", num_attention_heads=heads, head_dim=2))
    queries, keys = PLACES[:, 4:], PLACES
    with exact():
        actual = module.bias(queries, keys)
    leaves = module.log_r1, module.log_r2
    assert_same(actual, reference.kerple_bias(*leaves, queries, keys), *leaves)


def test_kerple_starts_as_in_the_official_code():
    module = POSITIONS["kerple"](decoder(position="kerple", num_attention_heads=1000, head_dim=2))
    module.init_parameters(0.02)
    for parameter, most in ((module.log_r1, 2.0), (module.log_r2, 1.0)):
        start = parameter.detach().exp()
        assert 0.0099 <= start.min() and start.max() <= most + 1e-4
        assert abs(start.mean() - most / 2) <= 0.1 * most
