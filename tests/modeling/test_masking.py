"""Masks admit exactly the pairs that pattern, causality, padding and packing leave."""

from functools import partial
from typing import get_args

import pytest
import torch
from slow_stack import PATTERNS
from transformers import DynamicCache, StaticCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import reference
from comparison import decoder, encoder
from errors import raises_sentence
from qkv.configuration.axes import STATE_KERNELS, PatternName
from qkv.modeling.kernel import by_mask
from qkv.modeling.kernels.state_cache import hold_states
from qkv.modeling.masks.masking import build_mask, build_masks, build_memory_mask
from qkv.modeling.position.token_layout import MaskSizes, Packing

pytestmark = pytest.mark.upstream

BATCH, LENGTH = 2, 11
BLOCKS = {"block_size": 2, "fixed_columns": 1, "num_random_blocks": 1, "random_blocks_seed": 5}
GRID = {"text_length": 2, "grid_columns": 4, "grid_kernel": 3}
STACKS = pytest.mark.parametrize("stack", [encoder, decoder], ids=["both ways", "causal"])
EVERY_PATTERN = pytest.mark.parametrize("pattern", get_args(PatternName))


def config_of(stack, pattern, **fields):
    return stack(pattern=pattern, sliding_window=3, **BLOCKS, **GRID, **fields)


def hidden(length=LENGTH, batch=BATCH):
    return torch.zeros(batch, length, 6)


def seen_by(config, keep=None, *, sizes=None, **packing):
    """The dense mask of the only pattern, as booleans (B, T, S)."""
    sizes = sizes or MaskSizes.of(config, LENGTH, None)
    mask = build_masks(config, hidden(sizes.length), sizes, keep, Packing(**packing), partial(build_mask, "eager"))
    (additive,) = mask.masks.values()
    if additive is None:
        return torch.ones(BATCH, sizes.length, sizes.total, dtype=torch.bool)
    assert set(additive.unique().tolist()) <= {0.0, torch.finfo(torch.float32).min}
    return (additive == 0)[:, 0].expand(BATCH, -1, -1)


def expected(config, queries=LENGTH, keys=LENGTH, **given):
    """The same from the loops of tests/support/reference.py."""
    visible = reference.visibility(PATTERNS[config.pattern](config), **given)
    # Causality is about the order in the row, whatever the positions are.
    rows = [
        [[visible(b, t, s) and (not config.causal or s <= t) for s in range(keys)] for t in range(queries)]
        for b in range(BATCH)
    ]
    return torch.tensor(rows)


def ones():
    return torch.ones(BATCH, LENGTH, dtype=torch.long)


def counted(keep):
    """Real tokens are counted: blocks begin at the first of them."""
    return {"keep": keep, "positions": (keep.cumsum(-1) - 1).clamp(min=0)}


RIGHT = ones().index_put((torch.tensor(1), torch.arange(7, LENGTH)), torch.tensor(0))
LEFT = ones().index_put((torch.tensor(1), torch.arange(4)), torch.tensor(0))
INSIDE = ones().index_put((torch.tensor(1), torch.tensor([0, 4, 5, 8])), torch.tensor(0))
DOCUMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]])
RESTARTS = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]])
PACKED = {"documents": DOCUMENTS, "positions": RESTARTS}
# Padding before, between and after the documents of a row.
BETWEEN = {
    "keep": torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]]),
    "positions": torch.tensor([[0, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]]),
    "documents": torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]]),
}
# {name: (mask of tokens, how they are packed, what the loops are told)}
LAYOUTS = {
    "plain": (None, {}, {}),
    "right": (RIGHT, {}, counted(RIGHT)),
    "left": (LEFT, {}, counted(LEFT)),
    "inside": (INSIDE, {}, counted(INSIDE)),
    "packed": (None, {"position_ids": RESTARTS}, PACKED),
    "packed, with ones": (ones(), {"position_ids": RESTARTS}, PACKED),
    "packed, later": (None, {"position_ids": RESTARTS + 7}, PACKED),
    "boundaries": (
        ones(),
        {"cu_seq_lens_q": torch.tensor([0, 5, 9, 11], dtype=torch.int32)},
        {name: value[[0, 0]] for name, value in PACKED.items()},
    ),
    "packed and padded": (BETWEEN["keep"], {"position_ids": BETWEEN["positions"]}, BETWEEN),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@EVERY_PATTERN
@STACKS
def test_mask(stack, pattern, layout):
    config, (keep, packing, told) = config_of(stack, pattern), LAYOUTS[layout]
    real = (ones() if keep is None else keep).bool()  # what padding sees is nobody's business
    assert torch.equal(seen_by(config, keep, **packing)[real], expected(config, **told)[real])
    built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), keep, Packing(**packing))
    if packing:
        places = packing.get("position_ids", told["positions"])
        assert torch.equal(built.positions.expand(BATCH, -1), places)


@pytest.mark.parametrize("kernel", [1, 5, 9])
def test_convolutions_may_be_wider_than_a_row(kernel):
    config = decoder(pattern="convolutional", **{**GRID, "grid_kernel": kernel})
    assert torch.equal(seen_by(config), expected(config))


MARKED = torch.tensor([[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]])


def with_global_tokens(config, marked, **given):
    """The loops' mask with tokens that see all and that all see: the first of a document, and those marked."""
    positions = given.get("positions", torch.arange(LENGTH).expand(BATCH, -1))
    chosen = (positions < config.num_global_tokens) | marked.bool()
    everything = {name: value for name, value in given.items() if name != "positions"}
    touching = chosen[:, :, None] | chosen[:, None]
    full = expected(config_of(decoder if config.causal else encoder, "full"), **everything)
    return expected(config, **given) | (full & touching)


GLOBAL = [(stack, first, None, "left") for stack in (encoder, decoder) for first in (1, 3)]
GLOBAL += [(encoder, first, MARKED, layout) for first in (0, 2) for layout in ("plain", "packed")]


@pytest.mark.parametrize("pattern", [word for word in get_args(PatternName) if word != "full"])
@pytest.mark.parametrize(("stack", "first", "marked", "layout"), GLOBAL)
def test_global_tokens(stack, first, marked, layout, pattern):
    config, (keep, packing, told) = config_of(stack, pattern, num_global_tokens=first), LAYOUTS[layout]
    given = {} if marked is None else {"global_attention_mask": marked}
    wanted = with_global_tokens(config, torch.zeros(BATCH, LENGTH) if marked is None else marked, **told)
    real = (ones() if keep is None else keep).bool()
    assert torch.equal(seen_by(config, keep, **packing, **given)[real], wanted[real])


def test_marks_change_nothing_where_all_is_seen_and_fit_the_tokens():
    config = config_of(encoder, "full")
    assert seen_by(config, global_attention_mask=MARKED).all()
    for wrong, words in ((MARKED[:, 1:], ("(2, 10)", "(2, 11)")), (2 * MARKED, ("0 to 2",))):
        with raises_sentence("global_attention_mask", *words):
            seen_by(config, global_attention_mask=wrong)


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
    keys, first = sizes.keys(0)
    actual = seen_by(config, sizes=sizes, position_ids=RESTARTS)
    assert torch.equal(actual, expected(config, **PACKED)[..., first : first + keys])


@EVERY_PATTERN
@pytest.mark.parametrize("make", [lambda c: DynamicCache(config=c), lambda c: StaticCache(c, max_cache_len=LENGTH)])
@pytest.mark.parametrize("chunks", [(11,), (4, 4, 3), (6, 1, 1, 3)])
def test_mask_of_chunks(pattern, make, chunks):
    """Each chunk sees of the cached keys what its rows of the whole mask see."""
    config = config_of(decoder, pattern, num_hidden_layers=1)
    cache, past = make(config), 0
    whole = expected(config, **counted(LEFT))
    for length in chunks:
        now, sizes = slice(past, past + length), MaskSizes.of(config, length, cache)
        actual = seen_by(config, LEFT[:, : past + length], sizes=sizes)
        keys, first = sizes.keys(0)
        wanted = torch.zeros(BATCH, length, keys, dtype=torch.bool)
        known = min(keys, LENGTH - first)
        wanted[..., :known] = whole[:, now, first : first + known]
        # A window forgets only what no later query could see.
        assert not whole[:, now, :first].any()
        real = LEFT[:, now].bool()
        assert torch.equal(actual[real], wanted[real])
        states = torch.zeros(BATCH, 3, length, 4)
        cache.update(states, states, 0)
        past += length


@STACKS
@pytest.mark.parametrize("keep", [None, ones()], ids=["no mask", "mask of ones"])
def test_nothing_hidden_needs_no_mask(stack, keep):
    """Without a mask sdpa may take its fastest kernel."""
    config = config_of(stack, "full")
    built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), keep, build=partial(build_mask, "sdpa"))
    assert built.masks == {"full": None}


def test_a_compiled_causal_stack_has_no_mask_of_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    config, hidden = (
        decoder(pattern=["full", "sliding", "strided"], sliding_window=5, block_size=2),
        torch.zeros(2, 7, 6),
    )
    monkeypatch.setattr("transformers.masking_utils.is_torchdynamo_exporting", lambda: True)
    sizes, marks, build = MaskSizes(0, 7, 7, None), torch.ones(2, 7).long(), partial(build_mask, "sdpa")
    hides = {name: mask is not None for name, mask in build_masks(config, hidden, sizes, build=build).masks.items()}
    assert hides == {"full": True, "sliding": True, "strided": True}
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    hides = {name: mask is not None for name, mask in build_masks(config, hidden, sizes, build=build).masks.items()}
    assert hides == {"full": False, "sliding": True, "strided": True}
    assert all(mask is not None for mask in build_masks(config, hidden, sizes, marks, build=build).masks.values())


def test_each_pattern_has_one_mask():
    config = decoder(pattern=["sliding", "full", "sliding"], sliding_window=3)
    built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), build=partial(build_mask, "eager"))
    assert set(built.masks) == {"sliding", "full"}
    assert (built.masks["sliding"] == 0).sum() < (built.masks["full"] == 0).sum()


SEEN = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
LOWEST = torch.finfo(torch.float32).min
PAIRS = {
    "bool": SEEN,
    "int": SEEN.int(),
    "long": SEEN.long(),
    "float": SEEN.float(),
    "half": SEEN.half(),
    "added": torch.zeros_like(SEEN, dtype=torch.double).masked_fill(~SEEN, torch.finfo(torch.double).min),
    "infinite": torch.zeros_like(SEEN, dtype=torch.float).masked_fill(~SEEN, -torch.inf),
}


@pytest.mark.parametrize("mask", PAIRS.values(), ids=PAIRS)
def test_a_mask_of_pairs_means_the_same_in_every_type(mask):
    config, sizes = config_of(decoder, "sliding"), MaskSizes.of(config_of(decoder, "sliding"), LENGTH, None)
    built = build_masks(config, hidden(), sizes, mask).masks["sliding"]
    assert built.dtype in (torch.bool, torch.float32)
    assert torch.equal(built if built.dtype == torch.bool else built == 0, SEEN)
    assert built.dtype == torch.bool or set(built.unique().tolist()) == {LOWEST, 0.0}
    by_type = build_masks(config, hidden(), sizes, {"sliding_attention": mask}).masks["sliding"]
    assert torch.equal(by_type, built)
    config = config_of(decoder, "full", cross_attention=True)
    assert torch.equal(build_memory_mask(config, "sdpa", hidden(), hidden(), mask), built)


def test_numbers_added_to_scores_stay():
    config, numbers = config_of(decoder, "full"), torch.rand(BATCH, 1, LENGTH, LENGTH) - 0.5
    for added in (numbers, torch.zeros_like(numbers)):
        built = build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), added)
        assert torch.equal(built.masks["full"], added)


@pytest.mark.parametrize("mask", [SEEN.long() * 2, SEEN.long() - 1, SEEN[:, 0], SEEN[..., 1:]])
def test_what_is_no_mask_of_pairs_is_refused(mask):
    config = config_of(decoder, "full")
    with raises_sentence("attention_mask"):
        build_masks(config, hidden(), MaskSizes.of(config, LENGTH, None), mask)


@pytest.mark.parametrize("bias", [None, torch.randn(1, 3, LENGTH, LENGTH)])
def test_flex_attention_adds_a_mask_of_each_head_to_the_bias(monkeypatch, bias):
    """It would read the first head's alone, and add booleans as numbers."""
    attend = ALL_ATTENTION_FUNCTIONS["flex_attention"]
    told = {}
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flex_attention", lambda *given, **options: told.update(options))
    mask, query = torch.rand(BATCH, 3, LENGTH, LENGTH) < 0.5, torch.zeros(BATCH, 3, LENGTH, 4)
    assert by_mask(attend, mask) is attend
    by_mask(ALL_ATTENTION_FUNCTIONS["flex_attention"], mask)(None, query, query, query, mask, position_bias=bias)
    added = torch.zeros(mask.shape).masked_fill(~mask, LOWEST)
    assert torch.equal(told["position_bias"], added if bias is None else added + bias)


def test_memory_mask():
    keep, memory = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]), torch.zeros(BATCH, 5, 6)
    finished = torch.zeros(BATCH, 1, LENGTH, 5)
    config = config_of(decoder, "full", cross_attention=True)
    assert build_memory_mask(config, "sdpa", hidden(), memory, None) is None
    additive = build_memory_mask(config, "eager", hidden(), memory, keep)
    assert torch.equal((additive == 0)[:, 0], keep.bool()[:, None].expand(-1, LENGTH, -1))
    assert torch.equal(build_memory_mask(config, "eager", hidden(), memory, finished), finished)
    broadcast = build_memory_mask(config, "sdpa", hidden(), memory, keep[:, None, None])
    assert torch.equal(broadcast, keep.bool()[:, None, None].expand(-1, 1, LENGTH, -1))
    sums = config_of(decoder, "full", kernel="linear", cross_attention=True)
    assert build_memory_mask(sums, "sdpa", hidden(), memory, None) is None
    assert torch.equal(build_memory_mask(sums, "sdpa", hidden(), memory, keep).padding, keep.bool())
    with raises_sentence("kernel='linear'", "(batch, length)"):
        build_memory_mask(sums, "sdpa", hidden(), memory, finished)


@pytest.mark.parametrize("cached", [8, 5])
def test_a_window_counts_real_tokens_of_a_cache(cached):
    """A row whose tokens were driven out by padding is refused, unless the cache keeps all."""
    config = config_of(decoder, "sliding", num_hidden_layers=1)
    cache, keep, size = DynamicCache(config=config), INSIDE[1:], LENGTH - cached
    for held in (cache, whole := DynamicCache()):
        held.update(torch.zeros(1, 2, cached, 3), torch.zeros(1, 2, cached, 3), 0)
    told = {"keep": keep, "positions": (keep.cumsum(-1) - 1).clamp(min=0)}
    visible = reference.visibility(PATTERNS["sliding"](config), **told)
    wanted = torch.tensor([[visible(0, t, s) and s <= t for s in range(LENGTH)] for t in range(cached, LENGTH)])
    for held in (cache, whole):
        sizes = MaskSizes.of(config, size, held)
        given = (config, hidden(size, 1), sizes, keep, Packing(), partial(build_mask, "sdpa"))
        if held is cache and cached == 8:  # which holds tokens 6 and 7
            mask = build_masks(*given).masks["sliding"][0, 0]
            assert torch.equal(mask[1:], wanted[1:, 6:])
        elif held is cache:
            with raises_sentence("attention_mask", "sliding_window=3", "DynamicCache()"):
                build_masks(*given)
        else:
            assert torch.equal(
                build_masks(*given).masks["sliding"][0, 0][keep[0, cached:] == 1], wanted[keep[0, cached:] == 1]
            )


@pytest.mark.parametrize("kernel", STATE_KERNELS)
def test_kernels_that_keep_a_state_have_masks_of_tokens(kernel):
    """Those of the new tokens alone: what is cached is in the state."""
    config = config_of(decoder, "full", kernel=kernel)
    keep = ones()
    keep[0, 0] = keep[1, -1] = 0
    sizes = MaskSizes.of(config, LENGTH, None)
    assert build_masks(config, hidden(), sizes).masks == {"state": None}
    mask = build_masks(config, hidden(), sizes, keep).masks["state"]
    assert torch.equal(mask.padding, keep.bool()) and mask.documents is None
    places = torch.arange(LENGTH)[None] % 4
    mask = build_masks(config, hidden(), sizes, None, Packing(places)).masks["state"]
    assert torch.equal(mask.documents, torch.arange(LENGTH)[None] // 4) and mask.padding is None
    cache = DynamicCache()
    hold_states(config, cache)
    cache.layers[0].length = LENGTH - 2
    mask = build_masks(config, hidden()[:, :2], MaskSizes.of(config, 2, cache), keep).masks["state"]
    assert torch.equal(mask.padding, keep.bool()[:, -2:])
    with raises_sentence(f"kernel={kernel!r}", "(batch, length)"):
        build_masks(config, hidden(), sizes, torch.zeros(BATCH, 1, LENGTH, LENGTH))
