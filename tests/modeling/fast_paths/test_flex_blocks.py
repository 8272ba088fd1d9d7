"""Patterns by blocks on a GPU: all but the kernel, for which a stand-in reads the listed blocks alone."""

import itertools
from collections.abc import Iterator
from typing import Any, get_args
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import create_block_mask

import qkv
import tiny
from comparison import assert_alike, decoder, encoder, exact, jittered, learned
from flex_stand_in import flex_attention
from qkv.configuration.axes import PatternName
from qkv.modeling import execution
from qkv.modeling.fast_paths import flex_blocks
from qkv.modeling.fast_paths.flex_blocks import FlexKernel, FlexMask, FlexPlan, skips_enough
from qkv.modeling.masks.masking import mask_rule
from qkv.modeling.modeling_decoder import QkvDecoderModel
from qkv.modeling.modeling_encoder import QkvEncoderModel
from qkv.modeling.modeling_encoder_decoder import QkvEncoderDecoderModel
from qkv.modeling.position.token_layout import TokenLayout
from sampling import sampled

LENGTH = 48
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
SIZES |= {"sliding_window": 3, "block_size": 4, "fixed_columns": 1, "num_random_blocks": 1}
SIZES |= {"max_position_embeddings": 64, "position": "rope"}
IDS = torch.randint(11, (3, LENGTH), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(LENGTH) < torch.tensor([[37], [1], [48]])).long()
MASKS = {
    "none": None,
    "ones": torch.ones_like(RIGHT),
    "right": RIGHT,
    "left": RIGHT.flip(1),
    "inside": RIGHT & (torch.arange(LENGTH) % 5 != 3),
    "empty row": RIGHT * torch.tensor([[1], [0], [1]]),
}
# Documents of 13, 35; 48; 2, 3, 43 tokens.
PLACES = torch.tensor([[*range(13), *range(35)], [*range(48)], [*range(2), *range(3), *range(43)]])
STACKS = {"encoder": (encoder, QkvEncoderModel, {}), "decoder": (decoder, QkvDecoderModel, {"use_cache": False})}
GRID = {"text_length": 2, "grid_columns": 4, "grid_kernel": 3}
# `strided` and `column` see a key in every block.
PATTERNS = [pattern for pattern in get_args(PatternName) if pattern not in ("full", "strided", "column")]


@pytest.fixture(autouse=True)
def kernel() -> Iterator[mock.Mock]:
    attend = mock.Mock(wraps=flex_attention)
    small = FlexKernel(attend, create_block_mask, (torch.float64, torch.float32, torch.bfloat16), 0, 2)
    # Texts are so short that few blocks are empty.
    with mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=small), mock.patch.object(flex_blocks, "SHARE", 1):
        yield attend


def built(stack: str, **fields: Any) -> Any:
    config, model_class, _ = STACKS[stack]
    return jittered(model_class(config(**{**SIZES, **(GRID if stack == "decoder" else {}), **fields})))


def computed(model: Any, way: Any, real: Tensor | None = None, **inputs: Any) -> list[Tensor]:
    with exact(), mock.patch.object(execution, "PLANS", [way] if way else []):
        return learned(model, real, **inputs)


def assert_equal(model: Any, real: Tensor | None = None, **inputs: Any) -> None:
    assert_alike(computed(model, FlexPlan, real, **inputs), computed(model, None, real, **inputs))


def allowed(stack: str, pattern: str) -> bool:
    return stack == "decoder" or pattern not in ("row", "convolutional")


CASES = [case for case in itertools.product(STACKS, PATTERNS, MASKS) if allowed(*case[:2])]


@pytest.mark.parametrize(("stack", "pattern", "mask"), sampled(CASES, 5))
def test_values_and_gradients_are_those_of_dense_masks(kernel: mock.Mock, stack: str, pattern: str, mask: str) -> None:
    model, real = built(stack, pattern=pattern), MASKS[mask]
    assert_equal(model, real, input_ids=IDS, attention_mask=real, **STACKS[stack][2])
    assert kernel.called


@pytest.mark.parametrize("mask", ["none", "right"])
@pytest.mark.parametrize(("stack", "pattern"), [case for case in itertools.product(STACKS, PATTERNS) if allowed(*case)])
def test_packed_documents_attend_to_themselves(kernel: mock.Mock, stack: str, pattern: str, mask: str) -> None:
    model, real = built(stack, pattern=pattern), MASKS[mask]
    assert_equal(model, real, input_ids=IDS, attention_mask=real, position_ids=PLACES, **STACKS[stack][2])
    ends = torch.tensor([0, 5, 6, 40, 48])
    if mask == "none":
        assert_equal(model, input_ids=IDS, cu_seq_lens_q=ends, cu_seq_lens_k=ends, **STACKS[stack][2])
    assert kernel.called


@pytest.mark.parametrize("mask", ["none", "left"])
@pytest.mark.parametrize(
    "fields", [{"pattern": "sliding"}, {"pattern": "sliding", "global_projections": True}], ids=str
)
def test_global_tokens(kernel: mock.Mock, fields: dict[str, Any], mask: str) -> None:
    real = MASKS[mask]
    assert_equal(built("encoder", num_global_tokens=2, **fields), real, input_ids=IDS, attention_mask=real)
    marked = IDS % 9 == 1 if real is None else (IDS % 9 == 1) & real.bool()
    given = {"input_ids": IDS, "attention_mask": real, "global_attention_mask": marked.long()}
    assert_equal(built("encoder", **fields), real, **given)
    assert kernel.called


def test_other_patterns_of_a_stack_keep_dense_masks(kernel: mock.Mock) -> None:
    model = built("decoder", pattern=["full", "random"])
    assert_equal(model, RIGHT, input_ids=IDS, attention_mask=RIGHT, use_cache=False)
    assert kernel.call_count == 1


def test_memory_has_a_dense_mask(kernel: mock.Mock) -> None:
    half = {"pattern": "dilated", "sliding_window": 2}
    config = tiny.encoder_decoder("transformer", num_attention_heads=2, head_dim=16, encoder=half, decoder=half)
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS.flip(0), "use_cache": False}
    masks = {"attention_mask": RIGHT, "decoder_attention_mask": RIGHT.flip(1)}
    assert_equal(jittered(QkvEncoderDecoderModel(config)).eval(), RIGHT.flip(1), **inputs, **masks)
    assert kernel.called


@pytest.mark.parametrize("stack", STACKS)
def test_layers_that_are_recomputed(stack: str) -> None:
    model = built(stack, pattern="block_sparse").train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    assert_equal(model, RIGHT, input_ids=IDS, attention_mask=RIGHT, use_cache=False)


@pytest.mark.parametrize("pattern", ["sliding", "block_sparse"])
def test_a_prompt_fills_a_cache_that_steps_read(kernel: mock.Mock, pattern: str) -> None:
    model, found = built("decoder", pattern=pattern).eval(), []
    for ways in ([FlexPlan], []):
        with exact(), torch.no_grad(), mock.patch.object(execution, "PLANS", ways):
            first = model(IDS[:, :40], attention_mask=RIGHT[:, :40].flip(1))
            more = {"attention_mask": torch.cat((RIGHT[:, :40].flip(1), torch.ones(3, 8)), dim=1)}
            second = model(IDS[:, 40:], past_key_values=first.past_key_values, **more)
        found.append([first.last_hidden_state * RIGHT[:, :40].flip(1)[..., None], second.last_hidden_state])
    assert_alike(*found)
    assert kernel.call_count == 2


def test_masks_of_whole_texts_are_built_once_for_all_batches_and_modes() -> None:
    model, made = built("encoder", pattern="block_sparse", block_size=5), []
    kernel = flex_blocks.FLEX_KERNELS["cpu"]._replace(
        build=lambda *given: made.append(create_block_mask(*given)) or made[-1]
    )
    with mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=kernel):
        with exact(), torch.inference_mode():
            model(IDS)
        computed(model, FlexPlan, input_ids=IDS[:2])
        assert len(made) == 1 and not made[0].kv_indices.is_inference()
        model.config.block_size = 4
        assert_equal(model, input_ids=IDS)
        assert len(made) == 2
        assert_equal(model, input_ids=IDS[:, :40])
        assert len(made) == 3
        assert_equal(model, RIGHT, input_ids=IDS, attention_mask=RIGHT)
        assert len(made) == 4


STAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "attentions": ("encoder", {}, {"output_attentions": True}),
    "mask of pairs": ("encoder", {}, {"attention_mask": torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool)}),
    "score bias": ("encoder", {"position": "alibi"}, {}),
    "every block": ("encoder", {"pattern": "strided"}, {}),
    "every block of a grid": ("decoder", {"pattern": "column"}, {}),
    "near everything": ("encoder", {"sliding_window": 13}, {}),
    "state": ("decoder", {"kernel": "linear", "pattern": "full"}, {"use_cache": False}),
    "eager": ("decoder", {"attn_implementation": "eager"}, {"use_cache": False}),
    "narrow heads": ("encoder", {"head_dim": 8}, {}),
    "wide heads": ("encoder", {"head_dim": 256}, {}),
    "dropped weights": ("encoder", {"attention_dropout": 0.1}, {}),
}


@pytest.mark.parametrize(("stack", "fields", "given"), STAYS.values(), ids=STAYS)
def test_masks_stay_dense_where_the_kernel_lacks_a_part(
    kernel: mock.Mock, stack: str, fields: dict[str, Any], given: dict[str, Any]
) -> None:
    model = built(stack, **{"pattern": "dilated", **fields}).train()
    with exact():
        model(**{"input_ids": IDS, **given})
    assert not kernel.called
    if "attention_dropout" in fields:
        assert_equal(model.eval(), RIGHT, input_ids=IDS, attention_mask=RIGHT)
        assert kernel.called


def test_half_precision_is_open(kernel: mock.Mock) -> None:
    model = built("encoder", pattern="dilated", residual_dropout=0.5).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS, attention_mask=RIGHT).last_hidden_state.sum().backward()
    assert kernel.call_args.args[0].dtype == torch.bfloat16
    assert all(each.grad is not None for each in model.parameters())


def seen(fields: dict[str, Any], pattern: str, length: int, block: int) -> float:
    """The share of pairs in blocks that see something."""
    config = decoder(**{**SIZES, **GRID, **fields}) if fields["causal"] else encoder(**SIZES | fields)
    tokens = torch.arange(length)[None]
    predicate, _ = mask_rule(config, pattern, TokenLayout(None, tokens, None))
    return 1 - create_block_mask(predicate, 1, None, length, length, "cpu", block).sparsity() / 100


@pytest.mark.parametrize(("stack", "pattern"), [case for case in itertools.product(STACKS, PATTERNS) if allowed(*case)])
def test_the_choice_counts_the_blocks(stack: str, pattern: str) -> None:
    causal = stack == "decoder"
    fields = {"block_size": 64, "fixed_columns": 8, "sliding_window": 50, "pattern": pattern}
    config = STACKS[stack][0](**{**SIZES, **(GRID if causal else {}), **fields})
    for length, block in itertools.product((128, 256, 512, 1024), (16, 32)):
        kernel = flex_blocks.FLEX_KERNELS["cpu"]._replace(block=block)
        share = seen({**fields, "causal": causal}, pattern, length, block)
        with mock.patch.object(flex_blocks, "SHARE", 0.5):
            chosen = skips_enough(config, pattern, torch.Size((1, length, 6)), kernel)
        # At the ends of a text, and before a token of a causal one, there are fewer blocks than it counts.
        assert chosen <= (share <= 0.5) and chosen >= (share <= 0.15), (length, block, share)


# Of 48 keys a block sees its own 2 and those of 4 places on either side.
SAVED = 4 * 3 * 48 * (48 - 10) * 4 * 16


@pytest.mark.parametrize("work", [0, SAVED, SAVED + 1])
def test_little_work_stays_dense(kernel: mock.Mock, work: float) -> None:
    model = built("encoder", pattern="dilated")
    with mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=flex_blocks.FLEX_KERNELS["cpu"]._replace(work=work)):
        model(IDS)
        assert kernel.called == (work <= SAVED)


def doubled(*args: Any, **options: Any) -> Tensor:
    """Give other numbers than the plain path, so that one sees which was taken."""
    return 2 * flex_attention(*args, **options)


@pytest.mark.parametrize(
    ("pattern", "given"), sampled(itertools.product(("dilated", "random"), ("whole", "padded", "packed")), 6, 5)
)
def test_compiled_graphs_take_the_kernel(pattern: str, given: str) -> None:
    torch._dynamo.reset()
    model = built("decoder", pattern=pattern)
    more = {"whole": {}, "padded": {"attention_mask": RIGHT.flip(1)}, "packed": {"position_ids": PLACES}}[given]
    inputs = {"input_ids": IDS, "use_cache": False, **more}
    kernel = flex_blocks.FLEX_KERNELS["cpu"]._replace(attend=doubled)
    with exact(), mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=kernel):
        expected = learned(model, more.get("attention_mask"), **inputs)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        actual = learned(compiled, more.get("attention_mask"), **inputs)
    assert_alike(actual, expected)


@pytest.mark.parametrize("mask", ["none", "left"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_flex_as_torch_runs_it(pattern: str, mask: str) -> None:
    """The stand-in is flex attention: here it is called itself, whose definition on a CPU reads no blocks."""
    model, real = built("decoder", pattern=pattern).eval(), MASKS[mask]
    given = {"input_ids": IDS, "attention_mask": real, "use_cache": False}
    found = []
    own = mock.patch.object(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", new=True)
    for attend in (torch_flex.flex_attention, flex_attention):
        kernel = flex_blocks.FLEX_KERNELS["cpu"]._replace(attend=attend)
        with exact(), torch.no_grad(), own, mock.patch.dict(flex_blocks.FLEX_KERNELS, cpu=kernel):
            hidden = model(**given).last_hidden_state
        found.append([hidden if real is None else hidden * real[..., None]])
    assert_alike(*found)


def test_weights_are_captured(kernel: mock.Mock) -> None:
    model, found = built("encoder", pattern="block_sparse").eval(), []
    for ways in ([FlexPlan], []):
        with exact(), mock.patch.object(execution, "PLANS", ways):
            with qkv.capture_attention(model, {"input_ids": IDS}) as captured:
                found.append([each.weights for each in captured])
    assert kernel.called
    assert_alike(*found)


def test_masks_know_their_pairs() -> None:
    model, seen = built("encoder", pattern="block_sparse"), []
    with mock.patch("qkv.modeling.stack.plan_of", lambda *given: seen.append(execution.plan_of(*given)) or seen[-1]):
        model(IDS)
    mask = seen[0].masks.masks["block_sparse"]
    assert isinstance(seen[0], FlexPlan) and isinstance(mask, FlexMask)
    assert mask.blocks.seq_lengths == (LENGTH, LENGTH) and mask.blocks.kv_num_blocks.shape == (1, 1, LENGTH // 2)
