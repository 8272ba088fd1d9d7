"""Masks admit exactly the pairs that pattern, causality, padding and packing leave."""

from functools import partial
from typing import get_args

import pytest
import torch
from transformers import DynamicCache, StaticCache

import reference
from comparison import decoder, encoder
from errors import raises_sentence
from qkv.configuration.axes import STATE_KERNELS, PatternName
from qkv.modeling.kernels.state_cache import hold_states
from qkv.modeling.masks.masking import build_mask, build_masks, build_memory_mask
from qkv.modeling.position.token_layout import MaskSizes, Packing

pytestmark = pytest.mark.upstream

BATCH, LENGTH = 2, 11
PREDICATES = {
    "full": reference.full,
    "sliding": partial(reference.sliding, window=3),
    "dilated": partial(reference.dilated, window=3, dilation=2),
    "block_sparse": partial(reference.block_sparse, block_size=2),
    "random": partial(reference.random, block_size=2, count=1, seed=5, causal=False),
    "strided": partial(reference.strided, stride=2),
    "fixed": partial(reference.fixed, stride=2, columns=1),
    "row": partial(reference.row, text_length=2, columns=4),
    "column": partial(reference.column, text_length=2, columns=4),
    "convolutional": partial(reference.convolutional, text_length=2, columns=4, kernel=3),
}
BLOCKS = {"block_size": 2, "fixed_columns": 1, "num_random_blocks": 1, "random_blocks_seed": 5}
GRID = {"text_length": 2, "grid_columns": 4, "grid_kernel": 3}
STACKS = pytest.mark.parametrize("stack", [encoder, decoder], ids=["both ways", "causal"])
EVERY_PATTERN = pytest.mark.parametrize("pattern", get_args(PatternName))


def config_of(stack, pattern, **fields):
    return stack(pattern=pattern, sliding_window=3, **BLOCKS, **GRID, **fields)


def hidden(length=LENGTH, batch=BATCH):
    return torch.zeros(batch, length, 6)


def seen_by(config, sizes, keep=None, **packing):
    """The dense mask of the only pattern, as booleans (B, T, S)."""
    build = partial(build_mask, "eager")
    mask = build_masks(config, hidden(sizes.length), sizes, keep, Packing(**packing), build)
    (additive,) = mask.masks.values()
    if additive is None:
        return torch.ones(BATCH, sizes.length, sizes.total, dtype=torch.bool)
    assert set(additive.unique().tolist()) <= {0.0, torch.finfo(torch.float32).min}
    return (additive == 0)[:, 0].expand(BATCH, -1, -1)


def expected(stack, pattern, queries=LENGTH, keys=LENGTH, **given):
    """The same from the loops of tests/support/reference.py."""
    own = {"causal": stack is decoder} if pattern == "random" else {}
    visible = reference.visibility(partial(PREDICATES[pattern], **own), **given)
    # Causality is about the order in the row, whatever the positions are.
    first = given.get("first_query", 0)
    rows = [
        [[visible(b, t, s) and (stack is encoder or s <= t + first) for s in range(keys)] for t in range(queries)]
        for b in range(BATCH)
    ]
    return torch.tensor(rows)


def real_rows(actual, wanted, keep):
    """Both masks at queries that are real tokens; what padding sees is nobody's business."""
    return actual[keep.bool()], wanted[keep.bool()]


@EVERY_PATTERN
@STACKS
def test_mask(stack, pattern):
    config = config_of(stack, pattern)
    actual = seen_by(config, MaskSizes.of(config, LENGTH, None))
    assert torch.equal(actual, expected(stack, pattern))


@pytest.mark.parametrize("kernel", [1, 5, 9])
def test_convolutions_may_be_wider_than_a_row(kernel, monkeypatch):
    monkeypatch.setitem(PREDICATES, "convolutional", partial(PREDICATES["convolutional"], kernel=kernel))
    config = decoder(pattern="convolutional", **{**GRID, "grid_kernel": kernel})
    assert torch.equal(seen_by(config, MaskSizes.of(config, LENGTH, None)), expected(decoder, "convolutional"))


@EVERY_PATTERN
@STACKS
@pytest.mark.parametrize("side", ["left", "right"])
def test_mask_with_padding(stack, pattern, side):
    config = config_of(stack, pattern)
    keep = torch.ones(BATCH, LENGTH, dtype=torch.long)
    padded = slice(None, 4) if side == "left" else slice(7, None)
    keep[1, padded] = 0
    actual = seen_by(config, MaskSizes.of(config, LENGTH, None), keep)
    # Real tokens are counted: blocks begin at the first of them.
    counts = (keep.cumsum(-1) - 1).clamp(min=0)
    wanted = expected(stack, pattern, keep=keep, positions=counts)
    assert torch.equal(*real_rows(actual, wanted, keep))


MARKED = torch.tensor([[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]])
NOT_FULL = pytest.mark.parametrize("pattern", [word for word in get_args(PatternName) if word != "full"])


def with_global_tokens(stack, pattern, first, marked, **given):
    """The loops' mask with tokens that see all and that all see: the `first` of a document, and those marked."""
    positions = given.get("positions", torch.arange(LENGTH).expand(BATCH, -1))
    chosen = (positions < first) | marked.bool()
    everything = {name: value for name, value in given.items() if name != "positions"}
    touching = chosen[:, :, None] | chosen[:, None]
    return expected(stack, pattern, **given) | (expected(stack, "full", **everything) & touching)


@NOT_FULL
@STACKS
@pytest.mark.parametrize("first", [1, 3])
def test_first_tokens_are_global(stack, pattern, first):
    config = config_of(stack, pattern, num_global_tokens=first)
    keep = torch.ones(BATCH, LENGTH, dtype=torch.long)
    keep[1, :4] = 0
    actual = seen_by(config, MaskSizes.of(config, LENGTH, None), keep)
    given = {"keep": keep, "positions": (keep.cumsum(-1) - 1).clamp(min=0)}
    wanted = with_global_tokens(stack, pattern, first, torch.zeros(BATCH, LENGTH), **given)
    assert torch.equal(*real_rows(actual, wanted, keep))


@NOT_FULL
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_marked_tokens_are_global(pattern, first, packed):
    config = config_of(encoder, pattern, num_global_tokens=first)
    given = {"documents": DOCUMENTS, "positions": RESTARTS} if packed else {}
    sizes, places = MaskSizes.of(config, LENGTH, None), RESTARTS if packed else None
    actual = seen_by(config, sizes, position_ids=places, global_attention_mask=MARKED)
    assert torch.equal(actual, with_global_tokens(encoder, pattern, first, MARKED, **given))


def test_marks_change_nothing_where_all_is_seen_and_fit_the_tokens():
    config = config_of(encoder, "full")
    assert seen_by(config, MaskSizes.of(config, LENGTH, None), global_attention_mask=MARKED).all()
    for wrong, words in ((MARKED[:, 1:], ("(2, 10)", "(2, 11)")), (2 * MARKED, ("0 to 2",))):
        with raises_sentence("global_attention_mask", *words):
            seen_by(config, MaskSizes.of(config, LENGTH, None), global_attention_mask=wrong)


DOCUMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]])
RESTARTS = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]])


PACKED = {
    "positions": {"position_ids": RESTARTS},
    "later positions": {"position_ids": RESTARTS + 7},
    "boundaries": {"cu_seq_lens_q": torch.tensor([0, 5, 9, 11], dtype=torch.int32)},
}


@EVERY_PATTERN
@STACKS
@pytest.mark.parametrize("keep", [None, torch.ones(BATCH, LENGTH)], ids=["no mask", "mask of ones"])
@pytest.mark.parametrize("by", PACKED)
def test_mask_of_packed_documents(stack, pattern, keep, by):
    config, rows = config_of(stack, pattern), [0, 0] if by == "boundaries" else [0, 1]
    sizes = MaskSizes.of(config, LENGTH, None)
    wanted = expected(stack, pattern, documents=DOCUMENTS[rows], positions=RESTARTS[rows])
    assert torch.equal(seen_by(config, sizes, keep, **PACKED[by]), wanted)
    built = build_masks(config, hidden(), sizes, keep, Packing(**PACKED[by]))
    assert torch.equal(built.positions.expand(BATCH, -1), PACKED[by].get("position_ids", RESTARTS[rows]))


@EVERY_PATTERN
@pytest.mark.parametrize("used", [False, True], ids=["new", "used and reset"])
def test_mask_of_documents_packed_into_a_static_cache(pattern, used):
    """Once used, it counts in a tensor."""
    config = config_of(decoder, pattern, num_hidden_layers=1)
    cache = StaticCache(config, max_cache_len=LENGTH)
    if used:
        cache.update(torch.ones(BATCH, 2, 3, 4), torch.ones(BATCH, 2, 3, 4), 0)
        cache.reset()
        assert pattern == "sliding" or isinstance(cache.get_seq_length(), torch.Tensor)
    sizes = MaskSizes.of(config, LENGTH, cache)
    actual = seen_by(config, sizes, position_ids=RESTARTS)
    keys, first = sizes.keys(0)
    wanted = expected(decoder, pattern, documents=DOCUMENTS, positions=RESTARTS)
    assert torch.equal(actual, wanted[..., first : first + keys])


@EVERY_PATTERN
@STACKS
def test_mask_of_packed_and_padded_rows(stack, pattern):
    """Padding before, between and after the documents of a row."""
    config = config_of(stack, pattern)
    keep = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]])
    places = torch.tensor([[0, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]])
    documents = torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]])
    actual = seen_by(config, MaskSizes.of(config, LENGTH, None), keep, position_ids=places)
    wanted = expected(stack, pattern, keep=keep, documents=documents, positions=places)
    assert torch.equal(*real_rows(actual, wanted, keep))


@EVERY_PATTERN
@pytest.mark.parametrize("make", [lambda c: DynamicCache(config=c), lambda c: StaticCache(c, max_cache_len=LENGTH)])
@pytest.mark.parametrize("chunks", [(11,), (4, 4, 3), (6, 1, 1, 3)])
def test_mask_of_chunks(pattern, make, chunks):
    """Each chunk sees of the cached keys what its rows of the whole mask see."""
    config = config_of(decoder, pattern, num_hidden_layers=1)
    cache, past = make(config), 0
    keep = torch.ones(BATCH, LENGTH, dtype=torch.long)
    keep[1, :4] = 0
    counts = (keep.cumsum(-1) - 1).clamp(min=0)
    whole = expected(decoder, pattern, keep=keep, positions=counts)
    for length in chunks:
        sizes = MaskSizes.of(config, length, cache)
        actual = seen_by(config, sizes, keep[:, : past + length])
        keys, first = sizes.keys(0)
        wanted = torch.zeros(BATCH, length, keys, dtype=torch.bool)
        known = min(keys, LENGTH - first)
        wanted[..., :known] = whole[:, past : past + length, first : first + known]
        # A window forgets only what no later query could see.
        assert not whole[:, past : past + length, :first].any()
        real = keep[:, past : past + length]
        assert torch.equal(*real_rows(actual, wanted, real))
        states = torch.zeros(BATCH, 3, length, 4)
        cache.update(states, states, 0)
        past += length


@pytest.mark.parametrize(("stack", "pattern"), [(encoder, "full"), (decoder, "full")])
@pytest.mark.parametrize("keep", [None, torch.ones(BATCH, LENGTH)], ids=["no mask", "mask of ones"])
def test_nothing_hidden_needs_no_mask(stack, pattern, keep):
    """Without a mask sdpa may take its fastest kernel."""
    config = config_of(stack, pattern)
    built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), keep, build=partial(build_mask, "sdpa"))
    assert built.masks == {pattern: None}


def test_each_pattern_has_one_mask():
    config = decoder(pattern=["sliding", "full", "sliding"], sliding_window=3)
    built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), build=partial(build_mask, "eager"))
    assert set(built.masks) == {"sliding", "full"}
    assert (built.masks["sliding"] == 0).sum() < (built.masks["full"] == 0).sum()


def test_a_finished_mask_is_used_as_it_is():
    config, finished = config_of(decoder, "sliding"), torch.zeros(BATCH, 1, LENGTH, LENGTH)
    assert build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), finished).masks["sliding"] is finished


def test_memory_mask():
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    memory = torch.zeros(BATCH, 5, 6)
    config = config_of(decoder, "full", cross_attention=True)
    assert build_memory_mask(config, "sdpa", hidden(), memory, None) is None
    additive = build_memory_mask(config, "eager", hidden(), memory, keep)
    assert torch.equal((additive == 0)[:, 0], keep.bool()[:, None].expand(-1, LENGTH, -1))
    finished = torch.zeros(BATCH, 1, LENGTH, 5)
    assert build_memory_mask(config, "eager", hidden(), memory, finished) is finished


@pytest.mark.parametrize("kernel", STATE_KERNELS)
def test_kernels_that_keep_a_state_have_masks_of_tokens(kernel):
    """Those of the new tokens alone: what is cached is in the state."""
    config = config_of(decoder, "full", kernel=kernel)
    keep = torch.ones(BATCH, LENGTH, dtype=torch.long)
    keep[0, 0] = keep[1, -1] = 0
    sizes = MaskSizes.of(config, LENGTH, None)
    assert build_masks(config, hidden(), sizes).masks == {"full": None}
    mask = build_masks(config, hidden(), sizes, keep).masks["full"]
    assert torch.equal(mask.padding, keep.bool()) and mask.documents is None
    places = torch.arange(LENGTH)[None] % 4
    mask = build_masks(config, hidden(), sizes, None, Packing(places)).masks["full"]
    assert torch.equal(mask.documents, torch.arange(LENGTH)[None] // 4) and mask.padding is None
    cache = DynamicCache()
    hold_states(config, cache)
    cache.layers[0].length = LENGTH - 2
    mask = build_masks(config, hidden()[:, :2], MaskSizes.of(config, 2, cache), keep).masks["full"]
    assert torch.equal(mask.padding, keep.bool()[:, -2:])


@pytest.mark.parametrize("kernel", STATE_KERNELS)
def test_kernels_that_keep_a_state_refuse_masks_of_pairs(kernel):
    config, finished = config_of(decoder, "full", kernel=kernel), torch.zeros(BATCH, 1, LENGTH, LENGTH)
    with raises_sentence(f"kernel={kernel!r}", "(batch, length)"):
        build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), finished)


def test_memory_mask_of_sums():
    config, memory = config_of(decoder, "full", kernel="linear", cross_attention=True), torch.zeros(BATCH, 5, 6)
    keep = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    assert build_memory_mask(config, "sdpa", hidden(), memory, None) is None
    assert torch.equal(build_memory_mask(config, "sdpa", hidden(), memory, keep).padding, keep.bool())
    with raises_sentence("kernel='linear'", "(batch, length)"):
        build_memory_mask(config, "sdpa", hidden(), memory, torch.zeros(BATCH, 1, LENGTH, 5))
