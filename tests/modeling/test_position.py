"""Each position encoding acts where the table of words says, and as its paper says."""

import math
from typing import get_args

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

import reference
from comparison import EXACT, assert_same, decoder, draw, encoder, exact, jittered, vision
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    ROTARY_POSITIONS,
    TABLE_POSITIONS,
    ImagePositionName,
    ObjectQueryPositionName,
    PositionName,
    SinusoidalPositionName,
)
from qkv.configuration.configuration_attention import ROPE_TYPES
from qkv.configuration.configuration_detection import QkvDetectionDecoderConfig, QkvDetectionEncoderConfig
from qkv.modeling.position import POSITIONS, Embedded, Position, apply_rotation

TRAINED = 13
# Those of every family; the others are a detector's.
WORDS = get_args(PositionName)
SCALINGS = {
    "default": {"rope_theta": 100.0},
    "linear": {"rope_theta": 100.0, "factor": 3.0},
    "dynamic": {"rope_theta": 100.0, "factor": 2.0},
    "yarn": {"rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": TRAINED},
    "llama3": {
        "rope_theta": 100.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": TRAINED,
    },
}
# Rows that differ, do not start at zero and skip.
PLACES = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 7, 8, 11, 12]])


def position(config):
    return jittered(POSITIONS[config.position](config))


def rope(kind, **fields):
    return decoder(position="rope", rope_parameters={"rope_type": kind, **SCALINGS[kind]}, **fields)


def test_every_word_is_a_row():
    assert tuple(POSITIONS) == (*WORDS, "sinusoidal_2d", "sinusoidal_2d_and_input", "object_queries")
    assert tuple(SCALINGS) == ROPE_TYPES


@pytest.mark.parametrize("word", WORDS)
def test_positions_keep_no_buffer(word):
    """Loading builds on the meta device: a buffer filled in `__init__` would be garbage afterwards."""
    assert dict(POSITIONS[word](decoder(position=word)).named_buffers()) == {}


HOOKS = {
    "embed": {*TABLE_POSITIONS, *get_args(SinusoidalPositionName), "sinusoidal_2d_and_input"},
    "rotation": {*ROTARY_POSITIONS},
    "query_key": {*get_args(ImagePositionName), *get_args(ObjectQueryPositionName)} - {"none"},
    "bias": {*BIAS_POSITIONS},
}


@pytest.mark.parametrize("hook", HOOKS)
def test_words_stand_where_their_classes_act(hook):
    """What backends, caches and plans conclude from a word's group is true of its class, and of no other."""
    overriding = {word for word, owner in POSITIONS.items() if getattr(owner, hook) is not getattr(Position, hook)}
    assert overriding == HOOKS[hook]


@pytest.mark.parametrize("word", WORDS)
def test_words_of_a_table_end_with_it_and_no_others_do(word):
    module = position(decoder(position=word))
    last = torch.tensor([[TRAINED - 1]])
    module.embed(Embedded(draw(1, 1, 6)), last)
    try:
        module.embed(Embedded(draw(1, 1, 6)), 1000 * last)
    except IndexError:
        assert word in TABLE_POSITIONS
    else:
        assert word not in TABLE_POSITIONS


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("places", [PLACES, PLACES[1:]], ids=["rows", "shared row"])
def test_learned(offset, places):
    module, hidden = position(decoder(position="learned", position_offset=offset)), draw(2, 7, 6)
    table = module.table.weight
    assert len(table) == TRAINED + offset
    expected = hidden + reference.learned_positions(places + offset, table)
    assert_same(module.embed(Embedded(hidden), places), expected, hidden, table)


@pytest.mark.parametrize(("text", "columns", "rows"), [(4, 3, 3), (0, 5, 3), (12, 9, 1)])
@pytest.mark.parametrize("places", [PLACES, PLACES[1:]], ids=["rows", "shared row"])
def test_grid(text, columns, rows, places):
    module = position(decoder(position="grid", text_length=text, grid_columns=columns))
    hidden, table = draw(2, 7, 6), module.table.weight
    assert len(table) == text + rows + columns
    expected = hidden + reference.grid_positions(places, table, text, rows, columns)
    assert_same(module.embed(Embedded(hidden), places), expected, hidden, table)


@pytest.mark.parametrize("size", [(3, 5), (5, 3), (4, 9), (7, 5), (2, 3), (1, 1)])
@pytest.mark.parametrize(("prefix", "offset"), [(0, 0), (1, 0), (2, 3)])
def test_learned_is_resampled_for_other_images(size, prefix, offset):
    tokens = {"class_token": prefix > 0, "distillation_token": prefix > 1, "pooling": "mean"}
    module = position(vision(position="learned", position_offset=offset, **tokens))
    assert len(module.table.weight) == offset + prefix + 3 * 5
    hidden = draw(2, prefix + size[0] * size[1], 6)
    places = torch.arange(hidden.shape[1])[None]
    expected = hidden + reference.resize_positions(module.table.weight[offset:], prefix, (3, 5), size)
    assert_same(module.embed(Embedded(hidden, grid=size), places), expected, hidden, module.table.weight)


@pytest.mark.parametrize("size", [(3, 5), (4, 9)])
def test_other_positions_ignore_the_grid(size):
    for word in set(WORDS) - {"learned"}:
        module, hidden = position(vision(position=word)), draw(2, 7, 6)
        assert torch.equal(module.embed(Embedded(hidden, grid=size), PLACES), module.embed(Embedded(hidden), PLACES))


@pytest.mark.parametrize("word", ["sinusoidal", "sinusoidal_concat", "sinusoidal_t2t"])
@pytest.mark.parametrize("dim", [2, 6, 10])
@pytest.mark.parametrize("first", [0, 2])
def test_sinusoidal(word, dim, first):
    table = getattr(reference, f"{word}_table")
    module, hidden = position(decoder(position=word, hidden_size=dim, position_offset=first)), draw(2, 7, dim)
    places = torch.cat((PLACES[:1], PLACES[1:] + 700))
    with exact():
        actual = module.embed(Embedded(hidden), places)
    expected = hidden + reference.learned_positions(places + first, table(713 + first, dim))
    assert_same(actual, expected, hidden)


def test_sinusoidal_of_a_late_position_keeps_its_digits():
    """Angles in single precision would be off by 0.004 at position 100,000."""
    module = POSITIONS["sinusoidal"](decoder(position="sinusoidal"))
    late = module.embed(Embedded(torch.zeros(1, 1, 6)), torch.tensor([[100_003]]))
    angles = [100_003 / 10000.0 ** (2 * (column // 2) / 6) for column in range(6)]
    expected = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
    assert (late[0, 0].double() - torch.tensor(expected, dtype=torch.float64)).abs().max() <= 6e-8


def test_sinusoidal_of_a_shift_is_a_linear_map():
    """PE(p + 5) = M PE(p) with one M for every p: each pair turns by its own angle."""
    module = position(decoder(position="sinusoidal"))
    with exact():
        waves = module.embed(Embedded(torch.zeros(1, 40, 6, dtype=torch.float64)), torch.arange(40)[None])[0]
    shift = torch.linalg.lstsq(waves[:10], waves[5:15], driver="gelsd").solution
    assert (waves[:35] @ shift - waves[5:]).abs().max() <= 1e-10


@pytest.mark.parametrize("kind", ROPE_TYPES)
@pytest.mark.parametrize("places", [PLACES, PLACES[1:], PLACES + 30], ids=["rows", "shared row", "past the trained"])
@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rope(kind, places, partial):
    config = rope(kind, head_dim=8, max_position_embeddings=TRAINED)
    config.rope_parameters["partial_rotary_factor"] = partial
    module, heads = position(config), draw(2, 3, 7, 8)
    length = int(places.max()) + 1
    frequencies, factor = reference.rope_frequencies(
        int(8 * partial), 100.0, config.rope_parameters, max_position_embeddings=TRAINED, sequence_length=length
    )
    with exact():
        actual, keys = apply_rotation(heads, heads, module.rotation(places, torch.float64))
    expected = reference.rotate_heads(heads, places.expand(2, -1), frequencies, factor)
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
    assert torch.equal(ours[0][:, 0], cosines) and torch.equal(ours[1][:, 0], sines)


def test_dynamic_rope_moves_only_past_the_trained_length():
    module, plain = (POSITIONS["rope"](rope(kind)) for kind in ("dynamic", "default"))
    short, long = torch.arange(TRAINED)[None], torch.arange(TRAINED + 1)[None]

    def cosines(encoding, places):
        return encoding.rotation(places, torch.float32).query[0]

    assert torch.equal(cosines(module, short), cosines(plain, short))
    assert not torch.equal(cosines(module, long), cosines(plain, long))


@pytest.mark.parametrize("kind", [kind for kind in ROPE_TYPES if kind != "dynamic"])
def test_rotary_score_depends_on_difference(kind):
    module, query, key = position(rope(kind)), draw(1, 3, 7, 4), draw(1, 3, 7, 4)

    def scores(shift):
        with exact():
            rotation = module.rotation(PLACES[1:] + shift, torch.float64)
        queries, keys = apply_rotation(query, key, rotation)
        return queries @ keys.transpose(-1, -2)

    assert (scores(0) - scores(1001)).abs().max() <= EXACT
    assert (scores(0) - query @ key.transpose(-1, -2)).abs().max() > 0.1


def test_rope_reads_its_config_at_every_forward():
    module = POSITIONS["rope"](rope("default"))
    before = module.rotation(PLACES, torch.float32).query
    module.config.rope_parameters = {"rope_type": "default", "rope_theta": 7.0}
    assert not torch.equal(before[0], module.rotation(PLACES, torch.float32).query[0])


def test_without_a_rotation_heads_pass():
    heads = draw(2, 3, 7, 4)
    assert all(passed is heads for passed in apply_rotation(heads, heads, None))


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi(heads):
    module = position(decoder(position="alibi", num_attention_heads=heads, head_dim=2))
    queries, keys = PLACES[:, 4:], PLACES
    with exact():
        actual = module.bias(queries, keys)
    assert_same(actual, reference.alibi_bias(heads, queries, keys))


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi_slopes_are_blooms(heads):
    """BLOOM multiplies slopes by the key's position alone, which shifts all scores of a row equally."""
    slopes = POSITIONS["alibi"](decoder(position="alibi", num_attention_heads=heads, head_dim=2)).slopes("cpu")
    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    assert (slopes[:, None] * torch.arange(5) - theirs[:, 0]).abs().max() <= 1e-6


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
    module = position(stack(position="t5", **sizes))
    queries, keys = PLACES[:, 4:] + 20, PLACES
    with exact():
        actual = module.bias(queries, keys)
    expected = reference.t5_bias(module.table.weight, queries, keys, stack is encoder, 20)
    assert_same(actual, expected, module.table.weight)


@pytest.mark.parametrize("word", BIAS_POSITIONS)
@STACKS
def test_bias_depends_on_the_difference(stack, word):
    module = position(stack(position=word))
    assert torch.equal(module.bias(PLACES, PLACES), module.bias(PLACES + 1001, PLACES + 1001))


def image(word="sinusoidal_2d"):
    return position(
        QkvDetectionEncoderConfig(
            hidden_size=12, num_attention_heads=3, patch_size=4, backbone_config=None, position=word
        )
    )


def embedded(mask, dtype=torch.float64):
    """Nothing, at each place of an image (B, rows, columns), of which some may be padding."""
    return Embedded(torch.zeros(len(mask), mask[0].numel(), 12, dtype=dtype), mask.flatten(1), tuple(mask.shape[1:]))


@pytest.mark.parametrize("word", ["sinusoidal_2d", "sinusoidal_2d_and_input"])
def test_rows_and_columns_are_told_apart_by_sinusoids(word):
    mask = torch.ones(3, 3, 5, dtype=torch.bool)
    mask[1, 2:], mask[2, :, 3:] = False, False
    module, places = image(word), embedded(mask)
    with exact():
        actual, inputs = module.query_key(places), module.embed(places, PLACES)
    for row in range(3):
        assert_same(actual[row], reference.image_positions(mask[row], 12))
    assert torch.equal(inputs, actual if word == "sinusoidal_2d_and_input" else places.hidden)


def test_an_image_is_encoded_the_same_alone_and_padded():
    small, large = torch.ones(1, 2, 3, dtype=torch.bool), torch.zeros(1, 4, 5, dtype=torch.bool)
    large[:, :2, :3] = True
    alone, padded = (image().query_key(embedded(mask)) for mask in (small, large))
    assert torch.equal(alone[0], padded[0][large.flatten()])
    assert torch.equal(alone, image().query_key(embedded(small)._replace(padding_mask=None)))


def test_positions_of_an_image_are_those_of_stock_detr():
    mask = torch.ones(2, 7, 9, dtype=torch.bool)
    mask[1, 5:] = False
    stock = DetrSinePositionEmbedding(6, normalize=True)((2, 12, 7, 9), "cpu", torch.float32, mask)
    ours = image().query_key(embedded(mask, torch.float32))
    assert (ours - stock.flatten(2).transpose(1, 2)).abs().max() <= 1e-6


def test_each_object_query_has_a_vector_of_its_own():
    module = position(QkvDetectionDecoderConfig(hidden_size=6, num_attention_heads=3, num_queries=4))
    vectors = module.query_key(Embedded(torch.zeros(2, 4, 6)))
    assert torch.equal(vectors, torch.stack([module.table.weight] * 2))
    assert dict(module.named_buffers()) == {}
