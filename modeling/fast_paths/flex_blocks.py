"""Patterns that see few keys on a GPU: flex attention, which skips blocks of queries and keys where nothing is seen.

On a CPU `windows.py` takes this place. Stacks of windows alone go by `varlen.py` where its kernel has their dtype.

Shapes: B batch, T tokens, H heads, G key-value heads, K head_dim.
"""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers.masking_utils import and_masks, padding_mask_function

from ...configuration.axes import BIAS_POSITIONS
from ...configuration.configuration_stack import StackConfig
from ..execution import Plan, StackInputs, StackParts
from ..kernel import AttentionFunction, computed_dtype
from ..masks.masking import AttentionMasks, Mask, MaskBuilder, Rule, SparseMask, build_mask, mask_rule
from ..position.token_layout import TokenLayout, first_layers
from .varlen import half_precision
from .windows import SHARE, reach_of


class FlexKernel(NamedTuple):
    """Flex attention, the builder of its block masks, the dtypes that it computes, and the work from which it wins.

    Source: Dong et al. 2024, Flex Attention, §3, https://arxiv.org/abs/2412.05496
    Shapes: query (B, H, T, K), key and value (B, G, T, K) -> (B, H, T, K)
    """

    attend: Callable[..., Any]
    build: Callable[..., BlockMask]
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16, torch.float32)
    work: float = 1e11  # floating-point operations that a layer saves
    block: int = 128  # queries of a block, and its keys


compiled = cache(partial(torch.compile, recompile_limit=64))  # by default a ninth pattern would compute all pairs


def fused(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function compiled, or as a part of the graph that is being compiled."""
    return (function if torch.compiler.is_compiling() else compiled(function))(*args, **options)


# By type of device. On an H100 a window of 1,024 in 16,384, which saves 8e11 operations a layer, ran 2.6 times as fast
# as by a dense mask, and one of 256 in 4,096, which saves 5e10, 0.6 times. Other patterns were never measured.
FLEX_KERNELS: dict[str, FlexKernel] = {}
if "recompile_limit" in signature(torch.compile).parameters:  # since torch 2.13
    FLEX_KERNELS["cuda"] = FlexKernel(partial(fused, flex_attention), partial(fused, create_block_mask))

# The fields of a config that patterns read, by which masks are kept: one that is forgotten here fails at once.
PatternFields = namedtuple(
    "PatternFields",
    "causal sliding_window dilation block_size fixed_columns num_random_blocks random_blocks_seed num_global_tokens "
    "text_length grid_columns grid_kernel",
)


@dataclass
class FlexMask(SparseMask):
    """The blocks that a pattern sees, the predicate of visible pairs, as capture reads it, and flex attention."""

    blocks: BlockMask
    mask_mod: Callable[..., Any]
    flex: Callable[..., Tensor]

    def attend(self, function: AttentionFunction, module: object, *heads: Any, **options: Any) -> tuple[Tensor, None]:
        """Attend in blocks that see something: (B, H, T, K), 2 x (B, G, T, K) -> (B, T, H, K)."""
        query, key, value = (half_precision(each) for each in heads[:3])
        how = {"scale": options["scaling"], "enable_gqa": query.shape[1] != key.shape[1]}
        return self.flex(query, key, value, block_mask=self.blocks, **how).transpose(1, 2), None


def skips_enough(config: StackConfig, pattern: str, shape: torch.Size, kernel: FlexKernel) -> bool:
    """Return True where empty blocks save more than flex costs: the one place that chooses between it and dense masks.

    Tokens of (B, T, D) count as one text in a row: the host would have to wait for padding, documents and marks.
    """
    reach, (rows, length, _), block, size = reach_of(config, pattern), shape, kernel.block, config.block_size
    if reach is None:  # `strided` and `column` see a key in every block
        return False
    near, first, ends = (-(-n // block) * block for n in (reach.near * reach.step, reach.first, config.fixed_columns))
    keys = block + near + first + (0 if config.causal else near + first)  # as many queries see all as all see keys
    keys += -(-block // size) * config.num_random_blocks * max(block, size) if reach.drawn else 0
    keys += length * ends // size if reach.summaries else 0
    work = 4 * rows * length * (length - keys) * config.num_attention_heads * config.head_dim
    return keys <= SHARE * length and work >= kernel.work


@lru_cache(maxsize=64)
def whole_blocks(kernel: FlexKernel, fields: PatternFields, pattern: str, length: int, device: torch.device) -> Any:
    """Build the block mask of texts without padding, the same for all rows and steps."""
    tokens = torch.arange(length, dtype=torch.int32, device=device)[None]
    seen, _ = mask_rule(cast(StackConfig, fields), pattern, TokenLayout(None, tokens, None))
    return kernel.build(
        lambda row, head, query, key: seen(row * 0, head, query, key), 1, None, length, length, device, kernel.block
    )


def seen_blocks(config: StackConfig, kernel: FlexKernel, hidden: Tensor, rule: Rule, how: dict[str, Any]) -> BlockMask:
    """Return the block mask of a pattern: of whole texts that of steps before, else a new one, made on the device."""
    (rows, length, _), device, layout = hidden.shape, hidden.device, how["layout"]
    if layout.padding is layout.documents is layout.marked is None and not torch.compiler.is_compiling():
        fields = PatternFields(*(getattr(config, name) for name in PatternFields._fields))
        with torch.inference_mode(mode=False):  # a backward pass may keep the mask of an earlier evaluation
            return whole_blocks(kernel, fields, how["pattern"], length, device)
    seen = rule[0] if layout.padding is None else and_masks(rule[0], padding_mask_function(layout.padding))
    return kernel.build(seen, rows, None, length, length, device, kernel.block)


class FlexPlan(Plan):
    """Compute patterns that see few keys by flex attention, and the others of a stack by dense masks."""

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "FlexPlan | None":
        """Return the plan where a pattern skips enough, and the kernel has all that the stack asks for."""
        config, hidden, sizes = stack.config, inputs.embedded.hidden, inputs.sizes
        kernel = FLEX_KERNELS.get(hidden.device.type)
        if kernel is None or computed_dtype(hidden) not in kernel.dtypes:
            return None
        wins = (
            inputs.backend == "sdpa"
            and not config.attention_sinks
            and not config.keeps_state
            and config.position_word not in BIAS_POSITIONS
            and 16 <= config.head_dim <= 128  # narrower ones are refused, wider ones were never tried
            and not (stack.training and config.attention_dropout)
            and (type(sizes.past), sizes.past, sizes.total) == (int, 0, sizes.length)
            and type(hidden) is Tensor  # not one of a plan of memory, which has no values
            and next(stack.layers[-1].parameters(), hidden).device == hidden.device  # layers elsewhere need masks there
            and not torch.compiler.is_exporting()
            and any(skips_enough(config, pattern, hidden.shape, kernel) for pattern in first_layers(config))
        )
        return cls(stack, inputs) if wins else None

    def build_masks(self, build: MaskBuilder = build_mask) -> AttentionMasks:
        def blocks_or_dense(backend: str, hidden: Tensor, *given: Any, **how: Any) -> Mask:
            kernel = FLEX_KERNELS[hidden.device.type]
            if skips_enough(self.config, how["pattern"], hidden.shape, kernel):
                blocks = seen_blocks(self.config, kernel, hidden, given[-1], how)
                return FlexMask(blocks, blocks.mask_mod, kernel.attend)
            return build(backend, hidden, *given, **how)

        return super().build_masks(blocks_or_dense)
